"""Qwen2 and Qwen2.5: the dense decoder with biases on q, k and v; upper layers may slide (Qwen team 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.families.dense import dense_program
from twostroke.models.common.families.llama import Defaults, read_dense, upper_windows
from twostroke.models.common.fields.fields import windows_by_layer
from twostroke.models.common.fields.nested import language_model_of_thinker, language_model_or_flat
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.types.spec.fields import Fields

DEFAULTS = Defaults(max_positions=32_768, kv_heads=32, sliding_window=4096)


@architecture(
    "Qwen2ForCausalLM", model_type="qwen2", other_types=("qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text")
)
def qwen2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Biases on q, k and v; windows from max_window_layers on."""
    facts, shape = read_dense(fields, DEFAULTS)
    window, usual = upper_windows(fields, DEFAULTS, facts.num_layers)
    windows = windows_by_layer(fields, facts.num_layers, window, usual)
    return facts, dense_program(replace(shape, qkv_bias=True, windows=windows))


@architecture(
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    model_type="qwen2_vl",
    other_types=("qwen2_5_vl",),
)
def qwen2_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Qwen2-VL and Qwen2.5-VL: the language model of a checkpoint that also sees images."""
    return language_model_or_flat(fields, "Qwen2ForCausalLM", {"rms_norm_eps": 1e-5, "num_key_value_heads": 8})


@architecture(
    "Qwen2_5OmniForConditionalGeneration",
    "Qwen2_5OmniModel",
    "Qwen2_5OmniThinkerForConditionalGeneration",
    model_type="qwen2_5_omni",
    other_types=("qwen2_5_omni_thinker",),
)
def qwen2_omni(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Qwen2.5-Omni: the part that writes text of a checkpoint that also sees, hears and speaks."""
    return language_model_of_thinker(fields, "Qwen2ForCausalLM", {"num_key_value_heads": 4, "rope_theta": 1e6})
