"""Bamba: Mamba-2 layers with a few of attention, a gated feed-forward block in each (IBM, Princeton, CMU, UIUC 2024).

Knows: its config fields, its tensors and its program. Must not know: which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.attend import Heads, attend
from twostroke.models.common.decoder import decoder_of, decoder_program
from twostroke.models.common.feed import Feed
from twostroke.models.common.fields import head_dim, kv_heads, read_facts, silu_only, with_silent
from twostroke.models.common.mamba2 import mamba2_block, read_mamba2
from twostroke.models.common.norm import Norm
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.add import add
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.spec.rope import rope_from_config

SILENT = {"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2}
PARTIAL = 0.5
"""Of a head's elements turn, whatever the config says: transformers ignores the field."""


@architecture("BambaForCausalLM", model_type="bamba")
def bamba(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """attn_layer_indices: the layers with attention."""
    fields = with_silent(fields, SILENT)
    tied = fields.boolean("tie_word_embeddings", False)
    facts = read_facts(fields, positions=262_144, ignored=("lm_head.weight",) if tied else ())
    silu_only(fields)
    norm = Norm(fields.number("rms_norm_eps", 1e-12, 0.1))
    num_heads, biased = fields.integer("num_attention_heads", 1, 4096), fields.boolean("attention_bias", False)
    dim = head_dim(fields, facts.hidden_size, num_heads)
    heads = Heads(
        facts.hidden_size, num_heads, kv_heads(fields, num_heads, None), dim, qkv_bias=biased, output_bias=biased
    )
    feed = Feed(
        facts.hidden_size,
        fields.integer("intermediate_size", 1, 1 << 20),
        bias=fields.boolean("mlp_bias", False),
        gate="feed_forward.gate_proj",
        up="feed_forward.up_proj",
        down="feed_forward.down_proj",
    )
    states = read_mamba2(fields, facts.hidden_size, norm.eps)
    turn = rope_from_config(
        Fields({**fields.values, "partial_rotary_factor": PARTIAL}, fields.place),
        dim,
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

    return facts, decoder_program(replace(decoder_of(facts, norm, tied), last_norm="model.final_layernorm"), layer)
