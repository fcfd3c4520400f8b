"""GPT-2's config and tensor names compared with transformers, in both spellings of names, and the fields that are
refused.

test_parity.py tests its logits, and test_config_fields.py also tests single fields.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from tests.models.described import described
from tests.models.families.stored import write_checkpoint
from tests.models.fields.test_configs import JSON
from tests.models.parity import Loaded
from tests.tiers import examples
from twostroke.models.common.registry import read_model
from twostroke.ops.program.check import check
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.reference import ReferenceOps
from twostroke.runner.folder import load_folder
from twostroke.types.errors import CorruptModel, ModelError, UnsupportedModel
from twostroke.types.spec.formats import F32
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.packed.cache import cached_weights
from twostroke.weights.packed.numpy_packer import NumpyPacker
from twostroke.weights.packed.room import KeptFolder
from twostroke.weights.tensors import wanted_tensors

PUBLISHED: dict[str, Any] = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
    "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
    "resid_pdrop": 0.1, "summary_activation": None, "vocab_size": 50257,
}  # fmt: skip
TOKENS = 30


def changed(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**PUBLISHED, **changes}.items() if value != "absent"}


@pytest.mark.parametrize("changes", [{}, {"n_inner": 100}, {"tie_word_embeddings": False, "n_positions": 64}], ids=str)
def test_tensors_and_parameters_are_those_of_transformers(changes: dict[str, Any]) -> None:
    judge = described(model_type="gpt2", **{"n_layer": 2, **changes})
    for written in judge.written:
        model = read_model({**written, "architectures": ["GPT2LMHeadModel"]})
        assert model.parameters() == judge.parameters
        held = dict(judge.shapes)
        if judge.config["tie_word_embeddings"]:
            held.pop("lm_head.weight")
        assert {tensor.name: tensor.shape for tensor in wanted_tensors(model)} == held


def test_the_published_config() -> None:
    model = read_model(PUBLISHED)
    assert model.parameters() == 124_439_808
    assert (model.max_positions, model.longest_context, model.eos_token_ids) == (1024, 1024, (50256,))
    assert model.rope_bytes(1024) == 0 and model.windows == (0,) * 12
    check(model.plain)
    check(model.program)
    assert {call.NAME for call in model.program.calls} >= {"layer_norm", "pointwise", "linear_add"}


def test_positions_are_never_rounded() -> None:
    chosen = format_choice("int4")
    table = next(weight for weight in read_model(PUBLISHED).program.weights if weight.role == "positions")
    assert chosen(table) is F32 and (table.rows, table.columns) == (1024, 768)


def test_what_a_silent_config_means_is_what_transformers_says() -> None:
    default = described(model_type="gpt2").config
    needed = ("architectures", "n_embd", "n_head", "n_layer", "vocab_size")
    model = read_model({name: PUBLISHED[name] for name in needed})
    assert model.max_positions == default["n_positions"]
    assert (model.bos_token_id, model.eos_token_ids) == (default["bos_token_id"], (default["eos_token_id"],))
    assert model.parameters() == 124_439_808, "tied, with an inner size of four times n_embd"
    assert read_model(changed(eos_token_id=None)).eos_token_ids == ()


@pytest.mark.parametrize(
    ("changes", "error", "word"),
    [
        ({"add_cross_attention": True}, UnsupportedModel, "add_cross_attention"),
        ({"activation_function": "mish"}, UnsupportedModel, "activation_function"),
        ({"n_embd": 770}, CorruptModel, "n_embd"),
        ({"n_embd": "absent"}, CorruptModel, "n_embd"),
        ({"n_head": 0}, CorruptModel, "n_head"),
        ({"n_head": 1, "n_embd": 4098}, CorruptModel, "n_head"),
        ({"n_layer": "12"}, CorruptModel, "n_layer"),
        ({"n_inner": 0}, CorruptModel, "n_inner"),
        ({"n_positions": 0}, CorruptModel, "n_positions"),
        ({"layer_norm_epsilon": -1}, CorruptModel, "layer_norm_epsilon"),
        ({"reorder_and_upcast_attn": 3}, CorruptModel, "reorder_and_upcast_attn"),
        ({"scale_attn_weights": "no"}, CorruptModel, "scale_attn_weights"),
        ({"num_hidden_layers": 11}, CorruptModel, "num_hidden_layers"),
        ({"is_causal": False}, UnsupportedModel, "is_causal"),
        ({"quantization_config": {"quant_method": "exl3"}}, UnsupportedModel, "exl3"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(changes: dict[str, Any], error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word) as caught:
        read_model(changed(**changes))
    assert caught.value.why and caught.value.fix  # type: ignore[attr-defined]


@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(st.sampled_from([*PUBLISHED, "n_inner", "hidden_size", "scale_attn_weights"]), JSON, max_size=4))
def test_hostile_configs_raise_nothing_but_model_errors(changes: dict[str, Any]) -> None:
    try:
        model = read_model({**PUBLISHED, **changes})
    except ModelError as error:
        assert len(str(error)) < 1000
    else:
        assert model.parameters() > 0 and len(model.windows) == model.num_layers


def respelled(folder: Path, **more: np.ndarray) -> None:
    """The names of the published files, without "transformer.", and with the buffers of the causal mask."""
    tensors = load_file(folder / "model.safetensors")
    found = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    found["h.0.attn.bias"], found["h.0.attn.masked_bias"] = (
        np.ones((1, 1, 4, 4), np.float32),
        np.array(-1e4, np.float32),
    )
    save_file({**found, **more}, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("family", ["gpt2", "gpt2-untied"])
def test_names_without_the_prefix_are_the_same_model(family: str, tmp_path: Path) -> None:
    write_checkpoint(family, tmp_path)
    ids = np.random.default_rng(5).integers(0, 199, TOKENS).tolist()
    expected = Loaded(tmp_path, ReferenceOps()).run(ids, [TOKENS])
    respelled(tmp_path)
    assert np.array_equal(Loaded(tmp_path, ReferenceOps()).run(ids, [TOKENS]), expected)
    model, whole = load_folder(tmp_path, F32)
    with Checkpoint.open(tmp_path) as checkpoint:
        cache = KeptFolder(tmp_path / "cache")
        for _ in range(2):  # packed at first, then mapped
            kept = cached_weights(cache, checkpoint, model, lambda weight: F32, NumpyPacker()).weights
            assert all(np.array_equal(kept.matrices[key].data, whole.matrices[key].data) for key in whole.matrices)


def test_a_tied_config_with_another_head_in_a_file_without_the_prefix(tmp_path: Path) -> None:
    write_checkpoint("gpt2", tmp_path)
    table = load_file(tmp_path / "model.safetensors")["transformer.wte.weight"]
    respelled(tmp_path, **{"lm_head.weight": table.copy()})
    assert "lm_head:head" not in load_folder(tmp_path, F32)[1].matrices
    respelled(tmp_path, **{"lm_head.weight": table + 1})
    assert "lm_head:head" in load_folder(tmp_path, F32)[1].matrices


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"transformer.wte.weight": np.ones((199, 64), np.float32)}, "lacks the tensor"),
        ({"h.0.crossattention.q_attn.bias": np.ones(64, np.float32)}, "crossattention"),
        ({"h.3.ln_1.weight": np.ones(64, np.float32)}, r"h\.3\.ln_1"),
        (
            {"h.0.attn.c_attn.weight": np.ones((192, 64), np.float32)},
            r"has the shape \[192, 64\], expected \[64, 192\]",
        ),
    ],
    ids=["both spellings", "another block", "one layer more", "not transposed"],
)
def test_tensors_that_do_not_belong_are_named(more: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    write_checkpoint("gpt2", tmp_path)
    respelled(tmp_path, **more)
    with pytest.raises(CorruptModel, match=message):
        load_folder(tmp_path, F32)
