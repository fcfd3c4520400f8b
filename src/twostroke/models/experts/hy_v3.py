"""Hunyuan 3: Qwen3's attention, experts by biased sigmoids next to a shared one (Tencent 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.layers import sparse_layer
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.mixture import LARGEST, expert_count, listed_blocks, named_feed
from twostroke.models.common.fields.read import read_parts
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.products.route import RouteRule, Scores
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.rope import rope_from_config

SILENT = {
    **{"head_dim": 128, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "num_experts": 192},
    **{"num_experts_per_tok": 8, "num_shared_experts": 1, "moe_intermediate_size": 1536},
}


@architecture("HYV3ForCausalLM", model_type="hy_v3")
def hy_v3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """The first layer is dense, unless mlp_layer_types says otherwise."""
    parts = read_parts(fields, SILENT, kv_absent=8)
    fields, layers = parts.fields, parts.facts.num_layers
    silu_only(fields)
    biased = fields.boolean("attention_bias", False)
    heads = replace(parts.heads, qkv_bias=biased, output_bias=biased, head_norm=parts.norm)
    mlp_bias = fields.boolean("mlp_bias", False)
    parts = replace(parts, heads=heads, feed=replace(parts.feed, bias=mlp_bias))
    turn = rope_from_config(fields, heads.head_dim, parts.facts.max_positions, theta=11_158_840.0)
    blocks = listed_blocks(fields, mixture(_mixture(fields, heads.hidden_size, mlp_bias)), layers, 1)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        return sparse_layer(t, parts, blocks[index], x, turn=turn)

    guesses = f"model.layers.{layers}."
    facts = replace(parts.facts, ignored=(*parts.facts.ignored, guesses))
    return facts, decoder_program(parts.decoder, layer)


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
