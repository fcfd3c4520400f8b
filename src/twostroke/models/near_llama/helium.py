"""Helium: Llama whose rotary pairs lie side by side (Kyutai 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults


@architecture("HeliumForCausalLM", model_type="helium")
def helium(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Helium. The number of heads times head_dim must be the hidden size, because attention's output matrix is
    square."""
    parts = read_parts(fields, defaults("helium"), kv_absent=20)
    fields = parts.fields
    if parts.heads.query != parts.facts.hidden_size:
        raise fields.wrong("head_dim", f"Times num_attention_heads it must be hidden_size, {parts.facts.hidden_size}.")
    turn = parts.rope(theta=100_000.0)
    biased = fields.boolean("attention_bias", False)
    parts = replace(
        parts,
        heads=replace(parts.heads, interleaved=True, qkv_bias=biased),
        feed=parts.biased_feed(),
    )
    return pre_decoder(parts, turn)
