"""Mellum 2: layers of Qwen3 with experts, some of which have a window and another rotary base (JetBrains 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, mixture
from twostroke.models.common.fields.fields import silu_only, windows_by_layer
from twostroke.models.common.fields.mixture import LARGEST, expert_count, listed_blocks
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.ops.products.route import RouteRule
from twostroke.types.spec.rope import ropes_by_layer_type

THETAS = {"sliding_attention": ("rope_local_base_freq", 10_000.0), "full_attention": ("rope_theta", 500_000.0)}
PREDICTION = ("mtp.", "model.mtp.")
"""Beginnings of the names of tensors of a layer that predicts a further token, which is not read."""


@architecture("MellumForCausalLM", model_type="mellum")
def mellum(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads config.json, returns the model. layer_types tells which layers have the window, and mlp_layer_types which
    have experts; without mlp_layer_types all layers have experts."""
    silu_only(fields)
    parts = read_parts(fields, defaults("mellum"), kv_absent=4)
    fields, facts, layers = parts.fields, parts.facts, parts.facts.num_layers
    heads = replace(parts.biased_heads(), head_norm=parts.norm)
    parts = replace(parts, heads=heads)
    ropes = ropes_by_layer_type(fields, heads.head_dim, facts.max_positions, THETAS, "full_attention")
    windows = windows_by_layer(fields, layers, window_of(fields, 1024), (0,) * layers)
    count = expert_count(fields, 64)
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count), fields.boolean("norm_topk_prob", True))
    shape = BankShape(count, facts.hidden_size, fields.integer("moe_intermediate_size", 1, LARGEST))
    block = mixture(Mixture(shape, LinearRouter("mlp.gate", count, rule), EachExpert("mlp.experts")))
    blocks = listed_blocks(fields, block, layers, 0)

    turns = [ropes["sliding_attention" if window else "full_attention"] for window in windows]
    parts = replace(parts, facts=replace(facts, ignored=(*facts.ignored, *PREDICTION)))
    return pre_decoder(parts, turns, windows=windows, blocks=blocks)
