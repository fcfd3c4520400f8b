"""Seed-OSS: Llama with biases on q, k and v (ByteDance Seed 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults


@architecture("SeedOssForCausalLM", model_type="seed_oss")
def seed_oss(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Seed-OSS. attention_bias decides whether q, k and v have biases, attention_out_bias whether attention's
    output product has one, and mlp_bias whether the feed-forward products have them."""
    parts = read_parts(fields, defaults("seed_oss"), kv_absent=8)
    fields = parts.fields
    turn = parts.rope()
    parts = replace(
        parts,
        heads=replace(
            parts.heads,
            qkv_bias=fields.boolean("attention_bias", True),
            output_bias=fields.boolean("attention_out_bias", False),
        ),
        feed=parts.biased_feed(),
    )
    return pre_decoder(parts, turn)
