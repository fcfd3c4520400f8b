"""Fields of config.json that change the answer are read as transformers reads them, or refused; none is ignored.

Each case edits the config.json of a tiny checkpoint. Cases of `SAME` must give transformers' logits. Cases of `REFUSED`
must give an error that names the field; for some of these transformers has no answer either.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.families.stored import logits_of, write_checkpoint
from tests.models.parity import BAR, Loaded, relative_error
from tests.weights.checkpoints import read_tensors, save
from twostroke.assembly.settings.config import ModelFacts, resolve_engine
from twostroke.assembly.settings.env import Machine
from twostroke.assembly.settings.resolver import Resolver, collect
from twostroke.ops.reference import ReferenceOps
from twostroke.runner.folder import load_folder, read_folder
from twostroke.types.errors import ConfigError, ModelError
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.formats import F32

LLAMA, MISTRAL, QWEN2, QWEN3 = "llama2-multi-head", "mistral-window", "qwen2-biases", "qwen3-head-norms"
EVERY = (LLAMA, MISTRAL, QWEN2, QWEN3)
GPT2 = "gpt2"
VOCABULARY = 199
PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}
ABSENT = object()
TYPES = ["full_attention", "sliding_attention", "full_attention"]

SAME: list[tuple[str, dict[str, Any]]] = [
    *((family, {"partial_rotary_factor": 0.5}) for family in EVERY),
    *((family, {"rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5}}) for family in EVERY),
    (LLAMA, {"hidden_act": "swish"}),
    (LLAMA, {"rms_norm_eps": 0.05}),
    (LLAMA, {"head_dim": None}),
    (LLAMA, {"rope_theta": 77.0, "rope_parameters": ABSENT}),
    (LLAMA, {"rope_theta": 77.0, "rope_parameters": {**PLAIN, "rope_theta": 500.0}}),
    (LLAMA, {"rope_theta": 77.0, "rope_parameters": ABSENT, "rope_scaling": {"type": "linear", "factor": 2.0}}),
    (LLAMA, {"rope_theta": 77.0, "rope_scaling": {**LINEAR, "rope_theta": 55.0}}),
    (LLAMA, {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 0}),
    (LLAMA, {"layer_types": ["full_attention"] * 3}),
    (MISTRAL, {"sliding_window": 8}),
    (MISTRAL, {"sliding_window": None}),
    (MISTRAL, {"attention_bias": True, "mlp_bias": True}),
    (QWEN2, {"layer_types": ABSENT, "use_sliding_window": False, "sliding_window": 8, "max_window_layers": 0}),
    (QWEN2, {"layer_types": ABSENT, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    (QWEN2, {"layer_types": TYPES, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}),
    (QWEN2, {"layer_types": ABSENT, "use_sliding_window": True, "sliding_window": None, "max_window_layers": 0}),
    (QWEN2, {"attention_bias": False}),
    (QWEN3, {"layer_types": ABSENT, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}),
    (QWEN3, {"layer_types": TYPES, "use_sliding_window": True, "sliding_window": 8}),
    (GPT2, {"scale_attn_weights": False}),
    (GPT2, {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True}),
    (GPT2, {"reorder_and_upcast_attn": True}),
    (GPT2, {"layer_norm_epsilon": 0.05}),
    *((GPT2, {"activation_function": name}) for name in ("gelu", "gelu_python", "gelu_pytorch_tanh", "relu", "silu")),
    (GPT2, {"activation_function": ABSENT, "n_inner": 256}),
    (GPT2, {"n_embd": ABSENT, "hidden_size": 64, "n_head": ABSENT, "num_attention_heads": 8}),
]

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *((family, {"is_causal": False}, "is_causal") for family in EVERY),
    *((family, {"per_layer_config": {"1": {"rms_norm_eps": 0.05}}}, "per_layer_config") for family in EVERY),
    *((family, {"rope_parameters": {**LINEAR, "partial_rotary_factor": 0.5}}, "partial_rotary") for family in EVERY),
    *((family, {"model_type": "qwen3" if family != QWEN3 else "llama"}, "model_type") for family in EVERY),
    *((family, {"hidden_act": "gelu"}, "hidden_act") for family in EVERY),
    (LLAMA, {"attention_bias": True}, "self_attn.q_proj.bias"),
    (LLAMA, {"mlp_bias": True}, "mlp.gate_proj.bias"),
    (LLAMA, {"num_hidden_layers": 2}, "num_hidden_layers"),
    (LLAMA, {"layer_types": ["sliding_attention"] * 3, "sliding_window": 8}, "layer_types"),
    (LLAMA, {"rope_parameters": {"full_attention": PLAIN, "rope_theta": 30.0}}, "per layer type"),
    (MISTRAL, {"sliding_window": 0}, "sliding_window"),
    (QWEN2, {"layer_types": TYPES, "sliding_window": 8, "use_sliding_window": False}, "layer_types"),
    (QWEN3, {"layer_types": TYPES, "sliding_window": None, "use_sliding_window": True}, "layer_types"),
    (GPT2, {"per_layer_config": {"1": {"n_inner": 5}}}, "per_layer_config"),
    (GPT2, {"model_type": "gptj"}, "model_type"),
    (GPT2, {"activation_function": "mish"}, "activation_function"),
    (GPT2, {"add_cross_attention": True}, "add_cross_attention"),
    (GPT2, {"hidden_size": 32}, "n_embd"),
    (GPT2, {"n_layer": 2}, "h.2"),
    (GPT2, {"n_inner": 112}, "c_fc"),
    (GPT2, {"n_positions": 128}, "wpe"),
]


def edited(folder: Path, changes: dict[str, Any]) -> Path:
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not ABSENT}))
    return folder


def ids(count: int = 40) -> list[int]:
    return np.random.default_rng(5).integers(0, VOCABULARY, count).tolist()


def named(case: tuple[Any, ...]) -> str:
    return f"{case[0]}-{'-'.join(case[1])}"


def agrees_with_transformers(case: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    write_checkpoint(case[0], tmp_path)
    folder = edited(tmp_path, case[1])
    assert relative_error(Loaded(folder, ReferenceOps()).run(ids(), [40]), logits_of(folder, ids())) < BAR


def is_refused_by_name(case: tuple[str, dict[str, Any], str], tmp_path: Path) -> None:
    write_checkpoint(case[0], tmp_path)
    with pytest.raises(ModelError, match=case[2]) as caught:
        Loaded(edited(tmp_path, case[1]), ReferenceOps())
    assert caught.value.why and caught.value.fix


@pytest.mark.parametrize("case", SAME, ids=named)
def test_a_field_is_read_as_transformers_reads_it(case: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    agrees_with_transformers(case, tmp_path)


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_a_field_that_is_not_implemented_is_refused_by_name(case: tuple[str, dict[str, Any], str], tmp_path: Path):
    is_refused_by_name(case, tmp_path)


@pytest.mark.parametrize("change", ["nothing", "first row", "last row", "dtype", "all"])
@pytest.mark.parametrize("family", [LLAMA, QWEN3, "gpt2-untied"])
def test_a_tied_config_with_a_head_in_the_file_is_what_the_file_holds(family: str, change: str, tmp_path: Path) -> None:
    write_checkpoint(family, tmp_path)
    folder = edited(tmp_path, {"tie_word_embeddings": True})
    tensors = read_tensors(folder / "model.safetensors")
    table = "transformer.wte.weight" if family == "gpt2-untied" else "model.embed_tokens.weight"
    head = tensors[table].copy()
    if change == "all":
        head = tensors["lm_head.weight"]
    elif change in ("first row", "last row"):
        head[0 if change == "first row" else -1, 3] += 0.5
    dtype = {"lm_head.weight": "BF16"} if change == "dtype" else "F32"
    save(folder / "model.safetensors", {**tensors, "lm_head.weight": head}, dtype)
    loaded = Loaded(folder, ReferenceOps())
    assert ("lm_head:head" in loaded.weights.matrices) == (change != "nothing")
    if change == "dtype":  # transformers would round the embedding too, or not, by its `dtype`
        return
    assert relative_error(loaded.run(ids(), [40]), logits_of(folder, ids())) < BAR


@pytest.mark.parametrize(
    ("scaling", "reach"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, 128),
        ({"rope_type": "linear", "factor": 2.0}, 64),
        ({"rope_type": "dynamic", "factor": 3.0}, 96),
        ({"rope_type": "default"}, 32),
    ],
)
def test_what_a_scaling_reaches_can_be_asked_for(scaling: dict[str, Any], reach: int, tmp_path: Path) -> None:
    write_checkpoint(LLAMA, tmp_path)
    rope = {"rope_theta": 10_000.0, **scaling}
    folder = edited(tmp_path, {"max_position_embeddings": 32, "rope_parameters": rope})
    spec, _ = load_folder(folder, F32)
    facts, machine = ModelFacts(str(folder), None, spec), Machine(2, 1 << 30, tmp_path)

    def context(**options: str) -> int:
        resolver = Resolver(collect(options, {}))
        resolve_engine(resolver, facts, machine, "generic")
        return int(resolver.resolved()["context"])

    assert (context(), context(context=str(reach))) == (32, reach), "the default stays what the config says"
    with pytest.raises(ConfigError, match=f"the model's {reach} positions"):
        context(context=str(reach + 1))
    loaded = Loaded(folder, ReferenceOps(), context=reach)
    assert relative_error(loaded.run(ids(reach), [reach]), logits_of(folder, ids(reach))) < BAR


def test_an_absent_field_is_shown_by_those_that_it_follows_from() -> None:
    fields = Fields({"hidden_size": 40, "num_attention_heads": 8, "head_dim": None}, "config.json")
    assert "hidden_size 40 and num_attention_heads 8" in fields.wrong("head_dim", "Why.").what
    other = Fields({"n_embd": 5}, "config.json").wrong("head_dim", "Why.")
    assert other.what.endswith("absent, so it follows from n_embd 5.")
    assert fields.wrong("other", "Why.").what == "config.json: other is absent."


def test_heads_that_cannot_turn_name_fields_of_the_config(tmp_path: Path) -> None:
    write_checkpoint(LLAMA, tmp_path)
    folder = edited(tmp_path, {"head_dim": ABSENT, "hidden_size": 36, "num_attention_heads": 4})
    with pytest.raises(ModelError) as caught:
        read_folder(folder)
    assert "hidden_size 36" in caught.value.what and "None" not in caught.value.what
