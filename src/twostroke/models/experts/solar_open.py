"""Solar Open: Llama's attention, experts by DeepSeek-V3's rule in every layer (Upstage 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.mixture import sigmoid_mixture
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults

SILENT = {**defaults("solar_open"), "intermediate_size": 1280}


@architecture("SolarOpenForCausalLM", model_type="solar_open")
def solar_open(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Solar Open. No layer is dense, so intermediate_size is not used."""
    parts = read_parts(fields, SILENT, kv_absent=8)
    fields, facts = parts.fields, parts.facts
    parts = replace(parts, heads=replace(parts.heads, qkv_bias=fields.boolean("attention_bias", False)))
    partial = fields.number("partial_rotary_factor", 1e-3, 1.0, default=1.0)
    turn = parts.rope(partial=partial, theta=1e6)
    block = sigmoid_mixture(fields, facts.hidden_size)
    return pre_decoder(parts, turn, blocks=(block,) * parts.facts.num_layers)
