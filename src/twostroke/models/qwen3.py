"""Qwen3: the dense decoder with a norm on each head's q and k and heads of a size of their own (Qwen team 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.nested import language_model
from twostroke.models.common.fields.read import read_parts, upper_windows
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults

HEAD_DIM = 128
"""The size of a head where config.json does not have the field; null in config.json means hidden_size divided by the
number of heads."""


@architecture("Qwen3ForCausalLM", model_type="qwen3", other_types=("qwen3_vl_text",))
def qwen3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Qwen3. Heads of q and k have norms; the config may set attention_bias. Layers have windows as in Qwen2."""
    silu_only(fields)
    fields = fields if fields.has("head_dim") else fields.changed({"head_dim": HEAD_DIM})
    parts = read_parts(fields, defaults("qwen3"), kv_absent=32)
    parts = replace(parts, heads=replace(parts.biased_heads(), head_norm=parts.norm))
    return pre_decoder(parts, parts.rope(), windows=upper_windows(fields, parts.facts.num_layers, 4096))


@architecture("Qwen3VLForConditionalGeneration", model_type="qwen3_vl")
def qwen3_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Qwen3-VL: the language model of a checkpoint that also sees images."""
    return language_model(fields, "Qwen3ForCausalLM", {"max_position_embeddings": 128_000})
