"""ERNIE 4.5: Llama with interleaved rotary pairs (Baidu 2025).

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

SILENT = {
    "head_dim": 128,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@architecture("Ernie4_5ForCausalLM", model_type="ernie4_5")
def ernie4_5(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """use_bias for all products of a layer."""
    parts = read_parts(fields, SILENT, kv_absent=2)
    biased = parts.fields.boolean("use_bias", False)
    turn = rope_from_config(parts.fields, parts.heads.head_dim, parts.facts.max_positions, theta=500_000.0)
    heads = replace(parts.heads, qkv_bias=biased, output_bias=biased, interleaved=True)
    parts = replace(parts, heads=heads, feed=replace(parts.feed, bias=biased))

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        return pre_layer(t, parts, x, turn=turn)

    return parts.facts, decoder_program(parts.decoder, layer)
