"""Flint: Qwen3's heads with sinks, rotations only where there is a window, experts next to a shared one (RecursiveSI
2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.feed import FeedForwardText
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.fields.fields import silu_only, windows_by_layer
from twostroke.models.common.fields.mixture import LARGEST, expert_count, named_feed
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.ops.products.route import RouteRule, Scores

NAMES = AttentionNames(sinks="self_attn.softmax_offset")


@architecture("FlintForCausalLM", model_type="flint")
def flint(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Layers 0, 1, 5, 9 ... and the last see everything, unless layer_types overrides this; layers without a window are
    not rotated. mlp_only_layers and decoder_sparse_step define which layers have no experts."""
    silu_only(fields)
    parts = read_parts(fields, defaults("flint"), kv_absent=4)
    fields, facts, layers = parts.fields, parts.facts, parts.facts.num_layers
    heads = replace(parts.biased_heads(), head_norm=parts.norm, names=NAMES)
    parts = replace(parts, heads=heads)
    turn = parts.rope()
    window = window_of(fields, 513)
    far = [index < 2 or index % 4 == 1 or index == layers - 1 for index in range(layers)]
    windows = windows_by_layer(fields, layers, window, tuple(0 if each else window for each in far))
    block, step = _block(fields, facts.hidden_size), fields.integer("decoder_sparse_step", 1, 4096, default=1)
    dense = set(fields.integers("mlp_only_layers"))
    blocks = [block if index not in dense and (index + 1) % step == 0 else None for index in range(layers)]
    return pre_decoder(parts, [turn if window else None for window in windows], windows=windows, blocks=blocks)


def _block(fields: Fields, hidden: int) -> FeedForwardText:
    count = expert_count(fields, 256)
    rule = RouteRule(
        fields.integer("num_experts_per_tok", 1, count), fields.boolean("norm_topk_prob", True), Scores.SIGMOID
    )
    shared = fields.integer("shared_expert_intermediate_size", 1, LARGEST)
    shape = BankShape(count, hidden, fields.integer("moe_intermediate_size", 1, LARGEST))
    feed = named_feed(hidden, shared, "mlp.shared_expert")
    return mixture(
        Mixture(shape, LinearRouter("mlp.gate", count, rule), EachExpert("mlp.experts"), shared=Shared(feed))
    )
