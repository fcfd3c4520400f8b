"""LFM2: gated short convolutions, with grouped attention in some layers (Liquid AI 2025)."""

from __future__ import annotations

import math
from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames, Heads, attend
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_of, decoder_program
from twostroke.models.common.blocks.feed import Feed, FeedForwardText
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, mixture
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.states.mamba2 import conv_taps
from twostroke.models.common.fields.fields import head_dim, kv_heads, read_facts, silu_only, with_silent
from twostroke.models.common.fields.hybrid import attention_layers
from twostroke.models.common.fields.mixture import expert_count
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.linear import linear
from twostroke.ops.products.route import RouteRule, Scores
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.multiply import multiply
from twostroke.ops.states.short_conv import short_conv
from twostroke.types.spec.rope import rope_from_config

SILENT = defaults("lfm2")
NAMES = AttentionNames(o="self_attn.out_proj", q_norm="self_attn.q_layernorm", k_norm="self_attn.k_layernorm")

BANKS = EachExpert("feed_forward.experts", gate="w1", up="w3", down_name="w2")
CORRECTION = "feed_forward.expert_bias"


@architecture("Lfm2ForCausalLM", model_type="lfm2")
def lfm2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads LFM2. Older configs have tie_embedding, block_ff_dim and full_attn_idxs in place of newer fields."""
    return _read(with_silent(fields, SILENT))


@architecture("Lfm2MoeForCausalLM", model_type="lfm2_moe")
def lfm2_moe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads LFM2 with experts. All layers after the first num_dense_layers have experts. intermediate_size is the exact
    inner size of the dense layers."""
    fields = with_silent(fields, {**SILENT, **defaults("lfm2_moe"), "block_auto_adjust_ff_dim": False})
    silu_only(fields)
    count, hidden = expert_count(fields), fields.integer("hidden_size", 2, 1 << 17)
    rule = RouteRule(
        fields.integer("num_experts_per_tok", 1, count),
        normalised=fields.boolean("norm_topk_prob", True),
        scores=Scores.SIGMOID,
        added=1e-6,
        factor=fields.number("routed_scaling_factor", 1e-6, 1e6, default=1.0),
    )
    biased = fields.boolean("use_expert_bias", True)
    router = LinearRouter("feed_forward.gate", count, rule, choice_bias=CORRECTION if biased else "")
    shape = BankShape(count, hidden, fields.integer("moe_intermediate_size", 1, 1 << 20))
    return _read(fields, mixture(Mixture(shape, router, BANKS)), fields.integer("num_dense_layers", 0, 4096))


def _read(fields: Fields, block: FeedForwardText | None = None, dense: int = 0) -> tuple[CommonFacts, ProgramText]:
    """Returns facts and program. block: the feed-forward block of the layers after the first `dense`; None for the
    usual one."""
    tied = fields.boolean("tie_embedding", fields.boolean("tie_word_embeddings", True))
    facts = read_facts(fields, positions=128_000, ignored=("lm_head.weight",) if tied else ())
    norm = Norm(fields.number("norm_eps", 1e-12, 0.1))
    num_heads = fields.integer("num_attention_heads", 1, 4096)
    dim = head_dim(fields, facts.hidden_size, num_heads)
    heads = Heads(facts.hidden_size, num_heads, kv_heads(fields, num_heads, None), dim, head_norm=norm, names=NAMES)
    feed = Feed(facts.hidden_size, _inner(fields), gate="feed_forward.w1", up="feed_forward.w3", down="feed_forward.w2")
    turn = rope_from_config(fields, dim, facts.max_positions, theta=1_000_000.0)
    named = fields.integers("full_attn_idxs") if fields.has("full_attn_idxs") else range(facts.num_layers)
    usual = tuple(index in named for index in range(facts.num_layers))
    attending = attention_layers(fields, facts.num_layers, usual)
    taps, biased = fields.integer("conv_L_cache", 2, 64), fields.boolean("conv_bias", False)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "operator_norm", x)
        mixed = attend(t, heads, h, turn=turn) if attending[index] else convolved(t, h, taps, biased)
        x = add(x, mixed)
        h = norm(t, "ffn_norm", x)
        return block(t, x, h) if block and index >= dense else add(x, feed(t, h))

    return facts, decoder_program(replace(decoder_of(facts, norm, tied), last_norm="model.embedding_norm"), layer)


def convolved(t: Tracer, h: Value, taps: int, biased: bool) -> Value:
    """Returns out(C * conv(B * x)), where [B | C | x] = in(h)."""
    width = h.width
    with t.layer("conv."):
        b, c, x = linear(h, t.matrix("states_in", {"in_proj": 3 * width}, width, bias=biased)).split(
            width, width, width
        )
        bias = t.vector("conv", width, suffix=".bias") if biased else None
        mixed = short_conv(multiply(x, b), conv_taps(t, "conv", width, taps), bias)
        return linear(multiply(mixed, c), t.matrix("states_out", {"out_proj": width}, width, bias=biased))


def _inner(fields: Fields) -> int:
    """Returns the inner size of the feed-forward block. It is two thirds of the config's number, times
    block_ffn_dim_multiplier, rounded up to a multiple of block_multiple_of. Where block_auto_adjust_ff_dim is false, it
    is the config's number."""
    inner = fields.integer("block_ff_dim", 1, 1 << 20, default=fields.integer("intermediate_size", 1, 1 << 20))
    if not fields.boolean("block_auto_adjust_ff_dim", True):
        return inner
    inner = int(2 * inner / 3)
    factor = fields.optional_number("block_ffn_dim_multiplier", 1e-3, 1e3)
    if factor is None and fields.has("block_ffn_dim_multiplier"):
        return inner
    multiple = fields.integer("block_multiple_of", 1, 1 << 20, default=256)
    return multiple * math.ceil(int((factor or 1.0) * inner) / multiple)
