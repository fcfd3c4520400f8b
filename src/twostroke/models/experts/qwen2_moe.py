"""Qwen2-MoE: Qwen2's attention, experts, and a shared expert scaled by a gate of the token (Qwen team 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.fields.fields import silu_only, windows_by_layer
from twostroke.models.common.fields.mixture import LARGEST, expert_count, named_feed
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.ops.products.route import RouteRule


@architecture("Qwen2MoeForCausalLM", model_type="qwen2_moe")
def qwen2_moe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Qwen2-MoE. decoder_sparse_step and mlp_only_layers define which layers have experts."""
    silu_only(fields)
    parts = read_parts(fields, defaults("qwen2_moe"), kv_absent=16)
    fields, layers = parts.fields, parts.facts.num_layers
    parts = replace(parts, heads=replace(parts.heads, qkv_bias=fields.boolean("qkv_bias", True)))
    turn = parts.rope()
    window = window_of(fields, 4096) if fields.boolean("use_sliding_window", False) else 0
    first = fields.integer("max_window_layers", 0, LARGEST, default=28)
    usual = tuple(window if index % 2 == 0 and index < first else 0 for index in range(layers))
    windows = windows_by_layer(fields, layers, window, usual)
    step, dense = fields.integer("decoder_sparse_step", 1, 4096, default=1), set(fields.integers("mlp_only_layers"))
    block = mixture(_mixture(fields, parts.facts.hidden_size))
    sparse = [index not in dense and (index + 1) % step == 0 for index in range(layers)]
    return pre_decoder(parts, turn, windows=windows, blocks=[block if each else None for each in sparse])


def _mixture(fields: Fields, hidden: int) -> Mixture:
    count = expert_count(fields, 60)
    rule = RouteRule(
        fields.integer("num_experts_per_tok", 1, count, default=4), fields.boolean("norm_topk_prob", False)
    )
    shared = fields.integer("shared_expert_intermediate_size", 1, LARGEST, default=5632)
    return Mixture(
        BankShape(count, hidden, fields.integer("moe_intermediate_size", 1, LARGEST, default=1408)),
        LinearRouter("mlp.gate", count, rule),
        EachExpert("mlp.experts"),
        shared=Shared(named_feed(hidden, shared, "mlp.shared_expert"), "mlp.shared_expert_gate"),
    )
