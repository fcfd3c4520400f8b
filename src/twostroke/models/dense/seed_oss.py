"""Seed-OSS: Llama with biases on q, k and v (ByteDance Seed 2025).

Knows: its config fields. Must not know: the ops, which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.decoder import decoder_program
from twostroke.models.common.layers import pre_layer
from twostroke.models.common.read import read_parts
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.spec.rope import rope_from_config

SILENT = {"head_dim": 128, "max_position_embeddings": 524_288, "bos_token_id": 0, "eos_token_id": 2}


@architecture("SeedOssForCausalLM", model_type="seed_oss")
def seed_oss(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """attention_bias for q, k and v, attention_out_bias, mlp_bias."""
    parts = read_parts(fields, SILENT, kv_absent=8)
    fields = parts.fields
    turn = rope_from_config(fields, parts.heads.head_dim, parts.facts.max_positions)
    parts = replace(
        parts,
        heads=replace(
            parts.heads,
            qkv_bias=fields.boolean("attention_bias", True),
            output_bias=fields.boolean("attention_out_bias", False),
        ),
        feed=replace(parts.feed, bias=fields.boolean("mlp_bias", False)),
    )

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return pre_layer(t, parts, x, turn=turn)

    return parts.facts, decoder_program(parts.decoder, layer)
