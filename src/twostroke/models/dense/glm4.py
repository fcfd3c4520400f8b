"""GLM-4: half of each head turns, in interleaved pairs; GLM-4-0414 has norms around blocks (GLM team 2024, 2025).

Knows: its config fields, the names of its norms. Must not know: the ops, which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.rows.add import add
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.spec.rope import RopeSpec, rope_from_config

SILENT = {
    "head_dim": 128,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1.5625e-7,
    "eos_token_id": [151_329, 151_336, 151_338],
}


@architecture("GlmForCausalLM", model_type="glm")
def glm(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """GLM, with Llama's order of norms."""
    parts, turn = _read(fields)
    return pre_decoder(parts, turn)


@architecture("Glm4ForCausalLM", model_type="glm4")
def glm4(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """A norm before and one after each block."""
    parts, turn = _read(fields)
    norm = parts.norm

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        seen = attend(t, parts.heads, norm(t, "input_layernorm", x), turn=turn)
        x = add(x, norm(t, "post_self_attn_layernorm", seen, in_place=True))
        made = parts.feed(t, norm(t, "post_attention_layernorm", x))
        return add(x, norm(t, "post_mlp_layernorm", made, in_place=True))

    return parts.facts, decoder_program(parts.decoder, layer)


def _read(fields: Fields) -> tuple[Parts, RopeSpec]:
    parts = read_parts(fields, SILENT, kv_absent=2)
    biased = parts.fields.boolean("attention_bias", True)
    turn = rope_from_config(parts.fields, parts.heads.head_dim, parts.facts.max_positions, partial=0.5)
    heads = replace(parts.heads, qkv_bias=biased, interleaved=True)
    return replace(parts, heads=heads, feed=replace(parts.feed, gate_up="mlp.gate_up_proj")), turn
