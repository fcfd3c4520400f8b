"""Ministral 3: Mistral with yarn, and queries multiplied by a factor that grows with the logarithm of their position
(Mistral AI 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults

SILENT = {
    **defaults("ministral3"),
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1e6,
        "factor": 16.0,
        "original_max_position_embeddings": 16_384,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale_all_dim": 1.0,
        "mscale": 1.0,
        "llama_4_scaling_beta": 0.1,
    },
}


@architecture("Ministral3ForCausalLM", model_type="ministral3")
def ministral3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Ministral 3. A query at position p is multiplied by 1 + beta log(1 + floor(p / trained positions))."""
    parts = read_parts(fields, SILENT, kv_absent=8)
    fields = parts.fields
    turn, window = parts.rope(), window_of(fields, 0)
    group = fields.group("rope_parameters") or fields.group("rope_scaling") or fields
    beta = group.number("llama_4_scaling_beta", 0.0, 1e3)
    parts = replace(parts, heads=replace(parts.heads, query_growth=beta))
    return pre_decoder(parts, turn, windows=(window,) * parts.facts.num_layers)
