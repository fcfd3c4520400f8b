"""A field that changes the arithmetic and that an architecture does not read is refused by name, never ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.models.published.dense import PUBLISHED as PUBLISHED_DENSE
from tests.models.published.dense import sizes
from tests.models.published.latent import PUBLISHED
from twostroke.models.common.registry import read_model
from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.types.spec.refused_fields import CHANGING, FROM_KEYS

LLAMA = sizes("LlamaForCausalLM", 199, 64, 112, 2, 4)
SOURCE = Path(__file__).resolve().parents[3] / "src" / "twostroke" / "models"


def strange(neutral: Any) -> Any:
    """A value that is not the neutral one."""
    return True if neutral is False else [0.5] if isinstance(neutral, dict) else 0.5


def test_values_that_change_nothing_pass() -> None:
    for place in (0, -1):
        assert read_model({**LLAMA, **{name: values[place] for name, values in CHANGING.items()}}).num_layers == 2
    assert read_model({**LLAMA, **dict.fromkeys(CHANGING)}).num_layers == 2


@pytest.mark.parametrize("name", CHANGING)
def test_a_field_that_is_not_read_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"config.json: {name} is .* not implemented for Llama") as caught:
        read_model({**LLAMA, name: strange(CHANGING[name][0])})
    assert caught.value.why and caught.value.fix


def test_each_of_them_is_read_by_an_architecture() -> None:
    text = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    assert [name for name in CHANGING if f'"{name}"' not in text] == []


def test_fields_of_the_language_model_inside_are_refused_with_their_place() -> None:
    outer = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "logit_scale": 2.6592}
    inner = {**LLAMA, "architectures": None, "model_type": "llama"}
    assert read_model({**outer, "text_config": inner}).num_layers == 2  # the outer one is not the language model's
    with pytest.raises(UnsupportedModel, match="text_config: logit_scale"):
        read_model({**outer, "text_config": {**inner, "logit_scale": 0.5}})


def test_a_key_of_a_gguf_file_that_is_not_read_is_refused_by_its_own_name() -> None:
    keys = {"final_logit_softcapping": "llama.final_logit_softcapping", "layer_norm_epsilon": "llama.x.epsilon"}
    assert read_model({**LLAMA, "rms_norm_eps": 1e-5, FROM_KEYS: {"rms_norm_eps": "llama.y"}}).num_layers == 2
    for name, key in keys.items():
        with pytest.raises(UnsupportedModel, match=key):
            read_model({**LLAMA, name: 0.5, FROM_KEYS: {name: key}})


def test_a_window_beside_local_attention_counts() -> None:
    """transformers writes both fields for ModernBERT's decoder, and reads the window."""
    config = PUBLISHED_DENSE["jhu-clsp/ettin-decoder-150m"][0]
    assert [max(read_model({**config, **more}).windows) for more in ({}, {"sliding_window": 40})] == [64, 40]


def test_a_share_of_a_head_that_contradicts_what_turns_is_refused() -> None:
    """transformers rotates as many elements as the share gives, whatever qk_rope_head_dim is."""
    config = {**PUBLISHED["deepseek-ai/DeepSeek-V4-Flash"][0], "qk_rope_head_dim": 64}
    groups = {"main": {"partial_rotary_factor": 0.3}, "compress": {"rope_type": "default"}}
    for wrong in ({"partial_rotary_factor": 0.3}, {"rope_parameters": groups}):
        with pytest.raises(CorruptModel, match="partial_rotary_factor"):
            read_model({**config, **wrong})
