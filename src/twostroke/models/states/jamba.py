"""Jamba: Mamba layers with one of attention in eight, experts in every second layer (AI21 Labs 2024).

Knows: its config fields, its tensors and its program. Must not know: which backend runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from twostroke.models.common.attend import Heads, attend
from twostroke.models.common.banks import BankShape, EachExpert
from twostroke.models.common.decoder import decoder_of, decoder_program
from twostroke.models.common.feed import Feed
from twostroke.models.common.fields import head_dim, kv_heads, read_facts, silu_only, with_silent
from twostroke.models.common.mamba import MambaShape, mamba_block
from twostroke.models.common.mixture import MOST_EXPERTS, LinearRouter, Mixture, mixture
from twostroke.models.common.norm import Norm
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.add import add
from twostroke.ops.route import RouteRule
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields

SILENT = {
    **{"num_key_value_heads": 8, "rms_norm_eps": 1e-6, "bos_token_id": 1, "eos_token_id": 2, "num_experts_per_tok": 2},
    **{"expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8, "attn_layer_offset": 4},
}
BANKS = EachExpert("feed_forward.experts")


@architecture("JambaForCausalLM", model_type="jamba")
def jamba(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Attention knows no positions; the steps, B and C of the scan have norms."""
    fields = with_silent(fields, SILENT)
    tied = fields.boolean("tie_word_embeddings", False)
    facts = read_facts(fields, positions=262_144, ignored=("lm_head.weight",) if tied else ())
    silu_only(fields)
    norm = Norm(fields.number("rms_norm_eps", 1e-12, 0.1))
    num_heads = fields.integer("num_attention_heads", 1, 4096)
    dim = head_dim(fields, facts.hidden_size, num_heads)
    heads = Heads(facts.hidden_size, num_heads, kv_heads(fields, num_heads, None), dim)
    states = _states(fields, facts.hidden_size, norm)
    inner = fields.integer("intermediate_size", 1, 1 << 20)
    feed = Feed(
        facts.hidden_size,
        inner,
        gate="feed_forward.gate_proj",
        up="feed_forward.up_proj",
        down="feed_forward.down_proj",
    )
    absent = fields.integer("num_local_experts", 1, MOST_EXPERTS, default=16)
    count = fields.integer("num_experts", 1, MOST_EXPERTS, default=absent)
    chosen = fields.integer("num_experts_per_tok", 1, count) if count > 1 else 1
    router = LinearRouter("feed_forward.router", count, RouteRule(chosen))
    experts = mixture(Mixture(BankShape(count, facts.hidden_size, inner), router, BANKS))
    attending, sparse = _every(fields, "attn_layer"), _every(fields, "expert_layer")

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "input_layernorm", x)
        if attending(index):
            x = add(x, attend(t, heads, h))
        else:
            with t.layer("mamba."):
                x = add(x, mamba_block(t, states, h))
        h = norm(t, "pre_ff_layernorm", x)
        return experts(t, x, h) if count > 1 and sparse(index) else add(x, feed(t, h))

    return facts, decoder_program(replace(decoder_of(facts, norm, tied), last_norm="model.final_layernorm"), layer)


def _states(fields: Fields, hidden_size: int, norm: Norm) -> MambaShape:
    auto = fields.values.get("mamba_dt_rank") in (None, "auto")
    return MambaShape(
        hidden_size,
        fields.integer("mamba_expand", 1, 64, default=2) * hidden_size,
        fields.integer("mamba_d_state", 1, 4096, default=16),
        math.ceil(hidden_size / 16) if auto else fields.integer("mamba_dt_rank", 1, 1 << 16),
        fields.integer("mamba_d_conv", 2, 64, default=4),
        fields.boolean("mamba_conv_bias", True),
        fields.boolean("mamba_proj_bias", False),
        lambda t, name, x: norm(t, name, x, in_place=True),
    )


def _every(fields: Fields, name: str) -> Callable[[int], bool]:
    """Layers `offset`, `offset` + `period` and so on."""
    period = fields.integer(f"{name}_period", 1, 4096)
    offset = fields.integer(f"{name}_offset", 0, period - 1)
    return lambda index: index % period == offset
