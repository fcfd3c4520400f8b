"""Cohere 2 with experts. Attention and the feed-forward block are parallel: both read the same normed rows, and both
outputs are added to the residual (Cohere 2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import silu_only, windows_by_layer
from twostroke.models.common.fields.mixture import LARGEST, expert_count, named_feed
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.route import RouteRule, Scores
from twostroke.ops.rows.expressions import add, scale
from twostroke.types.errors import UnsupportedModel

SCORES = {"softmax": Scores.SOFTMAX, "sigmoid": Scores.SIGMOID}
SHARES = {"sum": 1.0, "average": 0.5}
"""The factor of the sum of chosen and shared experts, by the word in the config."""


@architecture("Cohere2MoeForCausalLM", model_type="cohere2_moe")
def cohere2_moe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads config.json and returns the model. Unless layer_types overrides this, every fourth layer has full attention
    without rotary positions, and the others have a window. The first first_k_dense_replace layers have no experts; if
    prefix_dense_sliding_window_pattern is 1, all of these have rotary positions."""
    silu_only(fields)
    rms = fields.optional_number("rms_norm_eps", 1e-12, 0.1)
    parts = read_parts(fields, defaults("cohere2_moe"), kind=NormKind.PLAIN_LAYER, eps="layer_norm_eps")
    fields, facts, layers = parts.fields, parts.facts, parts.facts.num_layers
    heads = replace(parts.biased_heads(), interleaved=True)
    own_norm = Norm(rms) if rms else parts.norm
    decoder = replace(parts.decoder, norm=own_norm, logit_scale=fields.number("logit_scale", 1e-6, 1e6))
    sparse = _sparse(fields, layers)
    first = fields.integer("prefix_dense_sliding_window_pattern", 1, 4096, default=1)
    windows = _windows(fields, layers, first)
    spec = parts.rope()
    turns = [spec if windows[index] or (first == 1 and not sparse[index]) else None for index in range(layers)]
    block, share = _mixture(fields, facts.hidden_size, parts.feed.inner_size)
    inner = fields.optional_integer("prefix_dense_intermediate_size", 1, LARGEST) or parts.feed.inner_size
    feed = replace(parts.feed, inner_size=inner)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = own_norm(t, "input_layernorm", x)
        made = scale(block(t, h), share) if sparse[index] else feed(t, h)
        return add(add(x, attend(t, heads, h, window=windows[index], turn=turns[index])), made)

    return facts, decoder_program(decoder, layer)


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    words = fields.texts("mlp_layer_types")
    if not words:
        dense = fields.integer("first_k_dense_replace", 0, layers, default=0)
        return tuple(index >= dense for index in range(layers))
    if len(words) != layers or any(word not in ("dense", "sparse") for word in words):
        raise fields.wrong("mlp_layer_types", f"It must say {layers} times dense or sparse.")
    return tuple(word == "sparse" for word in words)


def _windows(fields: Fields, layers: int, first: int) -> tuple[int, ...]:
    window, step = window_of(fields, 4096), fields.integer("sliding_window_pattern", 1, 4096, default=4)
    dense = 0 if fields.texts("layer_types") else fields.integer("first_k_dense_replace", 0, layers, default=0)
    prefix = [window if (index + 1) % first else 0 for index in range(dense)]
    rest = [window if (index + 1) % step else 0 for index in range(layers - dense)]
    return windows_by_layer(fields, layers, window, (*prefix, *rest))


def _mixture(fields: Fields, hidden: int, inner: int) -> tuple[Mixture, float]:
    """Returns the block of experts, and the number by which the sum of its shared and chosen experts is multiplied: 0.5
    where the config asks for their average, else 1."""
    count = expert_count(fields, 8)
    scores = SCORES[_known(fields, "expert_selection_fn", "softmax", tuple(SCORES))]
    normalised = scores is Scores.SOFTMAX or fields.boolean("norm_topk_prob", True)
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count), normalised, scores)
    shared = fields.integer("num_shared_experts", 0, MOST_EXPERTS, default=0)
    share = SHARES[_known(fields, "shared_expert_combination_strategy", "average", tuple(SHARES))]
    feed = named_feed(hidden, shared * inner, "mlp.shared_experts")
    router = LinearRouter("mlp.gate", count, rule)
    block = Mixture(
        BankShape(count, hidden, inner),
        router,
        EachExpert("mlp.experts"),
        shared=Shared(feed) if shared else None,
    )
    return block, share if shared else 1.0


def _known(fields: Fields, name: str, usual: str, words: tuple[str, ...]) -> str:
    word = fields.text(name, usual)
    if word not in words:
        raise UnsupportedModel(
            f"{fields.place}: {name} {word[:40]!r} is not implemented.",
            why=f"Implemented for this family: {', '.join(words)}.",
            fix="Use a model of this family with one of these.",
        )
    return word
