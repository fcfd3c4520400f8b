"""Jamba: Mamba layers with one of attention in eight, experts in every second layer (AI21 Labs 2024)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, mixture
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.states.mamba import MambaShape, mamba_block
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.mixture import named_feed
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.route import RouteRule
from twostroke.ops.rows.expressions import add

BANKS = EachExpert("feed_forward.experts")


@architecture("JambaForCausalLM", model_type="jamba")
def jamba(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Jamba. Attention has no position embeddings. dt, B and C of the Mamba scan have norms."""
    parts = read_parts(fields, defaults("jamba"))
    fields, facts, norm = parts.fields, parts.facts, parts.norm
    silu_only(fields)
    states = _states(fields, facts.hidden_size, norm)
    feed = named_feed(facts.hidden_size, parts.feed.inner_size, "feed_forward")
    absent = fields.integer("num_local_experts", 1, MOST_EXPERTS, default=16)
    count = fields.integer("num_experts", 1, MOST_EXPERTS, default=absent)
    chosen = fields.integer("num_experts_per_tok", 1, count) if count > 1 else 1
    router = LinearRouter("feed_forward.router", count, RouteRule(chosen))
    experts = mixture(Mixture(BankShape(count, facts.hidden_size, feed.inner_size), router, BANKS))
    attending, sparse = _every(fields, "attn_layer"), _every(fields, "expert_layer")

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "input_layernorm", x)
        if attending(index):
            x = add(x, attend(t, parts.heads, h))
        else:
            with t.layer("mamba."):
                x = add(x, mamba_block(t, states, h))
        h = norm(t, "pre_ff_layernorm", x)
        return experts(t, x, h) if count > 1 and sparse(index) else add(x, feed(t, h))

    return facts, decoder_program(replace(parts.decoder, last_norm="model.final_layernorm"), layer)


def _states(fields: Fields, hidden_size: int, norm: Norm) -> MambaShape:
    auto = fields.value("mamba_dt_rank") in (None, "auto")
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
    """Returns a function that is true for layers `offset`, `offset` + `period` and so on."""
    period = fields.integer(f"{name}_period", 1, 4096)
    offset = fields.integer(f"{name}_offset", 0, period - 1)
    return lambda index: index % period == offset
