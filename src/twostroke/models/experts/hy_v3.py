"""Hunyuan 3: Qwen3's attention; experts chosen by sigmoids plus a bias, and a shared expert (Tencent 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.mixture import LARGEST, expert_count, listed_blocks, named_feed
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.ops.products.route import RouteRule, Scores


@architecture("HYV3ForCausalLM", model_type="hy_v3")
def hy_v3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Hunyuan 3. The first layer is dense, unless mlp_layer_types overrides this."""
    parts = read_parts(fields, defaults("hy_v3"), kv_absent=8)
    fields, layers = parts.fields, parts.facts.num_layers
    silu_only(fields)
    heads = replace(parts.biased_heads(), head_norm=parts.norm)
    mlp_bias = fields.boolean("mlp_bias", False)
    parts = replace(parts, heads=heads, feed=replace(parts.feed, bias=mlp_bias))
    turn = parts.rope(theta=11_158_840.0)
    blocks = listed_blocks(fields, mixture(_mixture(fields, heads.hidden_size, mlp_bias)), layers, 1)
    guesses = f"model.layers.{layers}."
    parts = replace(parts, facts=replace(parts.facts, ignored=(*parts.facts.ignored, guesses)))
    return pre_decoder(parts, turn, blocks=blocks)


def _mixture(fields: Fields, hidden: int, biased: bool) -> Mixture:
    count = expert_count(fields)
    factor = fields.number("router_scaling_factor", 1e-6, 1e6, default=2.826)
    chosen = fields.integer("num_experts_per_tok", 1, count)
    rule = RouteRule(chosen, normalised=True, scores=Scores.SIGMOID, added=1e-20, factor=factor)
    inner = fields.integer("moe_intermediate_size", 1, LARGEST)
    shared = fields.integer("num_shared_experts", 1, MOST_EXPERTS)
    feed = replace(named_feed(hidden, shared * inner, "mlp.shared_mlp"), bias=biased)
    return Mixture(
        BankShape(count, hidden, inner),
        LinearRouter("mlp.router.gate", count, rule, choice_bias="mlp.expert_bias"),
        EachExpert("mlp.experts"),
        shared=Shared(feed),
    )
