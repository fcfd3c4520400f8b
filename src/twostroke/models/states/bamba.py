"""Bamba: Mamba-2 layers with a few of attention, a gated feed-forward block in each (IBM, Princeton, CMU, UIUC 2024).
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.states.mamba2 import mamba2_block, read_mamba2
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.mixture import named_feed
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.rows.expressions import add
from twostroke.types.spec.rope import rope_from_config

PARTIAL = 0.5
"""The share of a head's elements that are rotated, whatever the config says: transformers ignores the field."""


@architecture("BambaForCausalLM", model_type="bamba")
def bamba(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Bamba. attn_layer_indices: the layers with attention; the others have Mamba-2."""
    parts = read_parts(fields, defaults("bamba"))
    fields, facts, norm, biased = parts.fields, parts.facts, parts.norm, parts.fields.boolean("attention_bias", False)
    silu_only(fields)
    heads = replace(parts.heads, qkv_bias=biased, output_bias=biased)
    feed = replace(
        named_feed(facts.hidden_size, parts.feed.inner_size, "feed_forward"), bias=fields.boolean("mlp_bias", False)
    )
    states = read_mamba2(fields, facts.hidden_size, norm.eps)
    turn = rope_from_config(
        fields.changed({"partial_rotary_factor": PARTIAL}),
        heads.head_dim,
        facts.max_positions,
        partial=PARTIAL,
    )
    attending = set(fields.integers("attn_layer_indices"))

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "input_layernorm", x)
        if index in attending:
            x = add(x, attend(t, heads, h, turn=turn))
        else:
            with t.layer("mamba."):
                x = add(x, mamba2_block(t, states, h))
        return add(x, feed(t, norm(t, "pre_ff_layernorm", x)))

    return facts, decoder_program(replace(parts.decoder, last_norm="model.final_layernorm"), layer)
