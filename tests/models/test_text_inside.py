"""Language models inside models that also take images: older files, rotations by time and place, refused fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.models.families.stored import config_of, write_checkpoint
from tests.models.parity import Loaded
from twostroke.models.common.registry import read_model
from twostroke.ops.reference import ReferenceOps
from twostroke.types.errors import ModelError
from twostroke.weights.tensors import program_names


def program_of(config: dict[str, Any]) -> str:
    return re.sub(" at 0x[0-9a-f]+", "", str(read_model(config).program))


def test_older_files_of_qwen2_vl_hold_the_fields_of_the_language_model_outside() -> None:
    nested = config_of("qwen2-vl")
    text = {name: value for name, value in nested["text_config"].items() if name != "rope_parameters"}
    turns = {"type": "mrope", "mrope_section": [2, 3, 3]}
    flat = {**text, "model_type": "qwen2_vl", "architectures": nested["architectures"], "rope_scaling": turns}
    assert program_of({**flat, "rope_theta": 1e4, "vision_config": {"depth": 1}}) == program_of(nested)
    assert program_of({**flat, "rope_theta": 2e4}) != program_of(nested)


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"model_type": "nothing-known"}, "nothing-known"), ({"hidden_act": "no-function"}, "hidden_act")],
)
def test_a_language_model_that_is_not_there_is_named(changes: dict[str, Any], named: str) -> None:
    config = config_of("llava")
    with pytest.raises(ModelError, match=named):
        read_model({**config, "text_config": {**config["text_config"], **changes}})


def test_the_towers_tensors_are_left_out_by_name() -> None:
    """All other tensors of a file are errors in it."""
    ignored = read_model(config_of("qwen2-vl")).ignored
    assert "visual." in ignored and "model.visual." in ignored and not any(name.startswith("lm") for name in ignored)


@pytest.mark.parametrize(
    ("family", "outer", "name"),
    [
        ("qwen2.5-omni", "qwen2_5_omni", "Qwen2_5OmniModel"),
        ("qwen3-omni", "qwen3_omni_moe", "Qwen3OmniMoeForConditionalGeneration"),
    ],
)
def test_the_part_of_omni_that_writes_text_lies_inside_a_group_of_its_own(family: str, outer: str, name: str) -> None:
    thinker = config_of(family)
    whole = {"architectures": [name], "model_type": outer, "thinker_config": thinker, "talker_config": {"x": 1}}
    assert program_of(whole) == program_of(thinker)
    stored = frozenset({"thinker.model.layers.0.mlp.up_proj.weight", "thinker.lm_head.weight"})
    names = program_names(stored, read_model(whole))
    assert sorted(names.values()) == ["lm_head.weight", "model.layers.0.mlp.up_proj.weight"]
    ignored = read_model(whole).ignored
    assert {"talker.", "token2wav.", "code2wav.", "audio_tower."} <= set(ignored)


def test_the_language_model_of_llava_1_5_leaves_out_its_sizes() -> None:
    """The configs are those of llava-hf/llava-1.5-7b-hf and llava-v1.6-mistral-7b-hf."""
    text = {"model_type": "llama", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "vocab_size": 32_064}
    outer = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava"}
    model = read_model({**outer, "text_config": text})
    assert (model.vocab_size, model.hidden_size, model.num_layers) == (32_064, 4096, 32)
    assert model.parameters() / 1e9 == pytest.approx(6.739, rel=0.001)  # Vicuna 7B, with 64 more tokens
    newer = {"architectures": ["LlavaNextForConditionalGeneration"], "model_type": "llava_next"}
    text = {"model_type": "mistral", "intermediate_size": 14_336, "num_key_value_heads": 8, "vocab_size": 32_064}
    assert read_model({**newer, "text_config": text}).parameters() / 1e9 == pytest.approx(7.242, rel=0.001)


@pytest.mark.parametrize(("family", "field"), [("aya-vision", "logit_scale"), ("granite-speech", "logits_scaling")])
def test_factors_of_logits_are_those_of_the_language_model_itself(family: str, field: str) -> None:
    """transformers 5 leaves them out around a tower. Greedy tokens are the same, drawn ones are not."""
    config = config_of(family)
    text = {**config["text_config"], field: 0.25}
    names = {"cohere2": "Cohere2ForCausalLM", "granite": "GraniteForCausalLM"}
    alone = {**text, "architectures": [names[text["model_type"]]], "tie_word_embeddings": True}
    assert program_of({**config, "text_config": text}) == program_of(alone)
    assert program_of({**config, "text_config": text}) != program_of(config)


def test_stacks_of_experts_may_lie_either_way_round(tmp_path: Path) -> None:
    """Published checkpoints of Qwen3-VL-MoE have (experts, columns, rows), and saved ones (experts, rows, columns)."""
    write_checkpoint("qwen3-vl-moe", tmp_path)
    ids = list(range(20))
    saved = Loaded(tmp_path, ReferenceOps()).run(ids, [20])
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    turned = [name for name in tensors if ".mlp.experts." in name]
    assert len(turned) == 4
    other = {name: np.ascontiguousarray(tensors[name].transpose(0, 2, 1)) for name in turned}
    save_file({**tensors, **other}, file)
    assert np.array_equal(Loaded(tmp_path, ReferenceOps()).run(ids, [20]), saved)


def test_weights_of_experts_that_are_not_divided_are_refused() -> None:
    config = config_of("qwen3-vl-moe")
    with pytest.raises(ModelError, match="norm_topk_prob"):
        read_model({**config, "text_config": {**config["text_config"], "norm_topk_prob": False}})


def test_an_outer_word_that_the_head_is_the_embedding_counts_over_the_inner_one() -> None:
    config = config_of("llava")
    tied = read_model({**config, "tie_word_embeddings": True})
    assert "lm_head.weight" in tied.ignored and "lm_head.weight" not in read_model(config).ignored
