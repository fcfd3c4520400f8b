"""Qwen2 and Qwen2.5: the dense decoder with biases on q, k and v; upper layers may have a window (Qwen team 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.nested import language_model_of_thinker, language_model_or_flat
from twostroke.models.common.fields.read import read_parts, upper_windows
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults


@architecture(
    "Qwen2ForCausalLM", model_type="qwen2", other_types=("qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text")
)
def qwen2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Qwen2 and Qwen2.5. q, k and v have biases. Layers from max_window_layers on have windows where
    use_sliding_window is true."""
    silu_only(fields)
    parts = read_parts(fields, defaults("qwen2"), kv_absent=32)
    parts = replace(parts, heads=replace(parts.heads, qkv_bias=True))
    return pre_decoder(parts, parts.rope(), windows=upper_windows(fields, parts.facts.num_layers, 4096))


@architecture(
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    model_type="qwen2_vl",
    other_types=("qwen2_5_vl",),
)
def qwen2_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Qwen2-VL and Qwen2.5-VL: the language model of a checkpoint that also sees images."""
    return language_model_or_flat(fields, "Qwen2ForCausalLM", {"rms_norm_eps": 1e-5, "num_key_value_heads": 8})


@architecture(
    "Qwen2_5OmniForConditionalGeneration",
    "Qwen2_5OmniModel",
    "Qwen2_5OmniThinkerForConditionalGeneration",
    model_type="qwen2_5_omni",
    other_types=("qwen2_5_omni_thinker",),
)
def qwen2_omni(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the part of Qwen2.5-Omni that writes text. The checkpoint also has parts for images, sounds and speech."""
    return language_model_of_thinker(fields, "Qwen2ForCausalLM", {"num_key_value_heads": 4, "rope_theta": 1e6})
