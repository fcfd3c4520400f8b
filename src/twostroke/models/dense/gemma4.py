"""Gemma 4: heads and rotations by type of layer, shared K and V, per-layer embeddings, experts next to a dense block.

Some checkpoints also take images or sounds: this file reads only their language model. For rows that need no logits,
transformers leaves out the layers that have no K and V of their own. This file computes all layers for all rows; the
logits are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from twostroke.models.common.blocks.banks import BankShape, Stacks
from twostroke.models.common.blocks.decoder import Decoder, head
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, Mixture
from twostroke.models.common.blocks.owned_attention import NormedHeads, attend_owned, owners
from twostroke.models.common.blocks.per_layer import PerLayer
from twostroke.models.common.fields.fields import refuse_setting, rounded_to
from twostroke.models.common.fields.nested import language_model
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.embed import embed
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.linear import linear
from twostroke.ops.products.route import RouteRule, route
from twostroke.ops.program.values import Cache
from twostroke.ops.rows.expressions import add, scale, scale_columns
from twostroke.ops.rows.rms_norm import rms_norm
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.rope import MAX_POSITIONS, ropes_by_layer_type

SLIDING, FULL = "sliding_attention", "full_attention"
THETAS = {SLIDING: ("rope_local_base_freq", 10_000.0), FULL: ("rope_theta", 1_000_000.0)}
ROPES = {
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
}
LayerFeed = Callable[[Tracer, Value, Value], Value]
"""feed(trace, residual, normed) returns the output that is then normed and added."""


@dataclass(frozen=True, slots=True)
class SharingLayer:
    """One layer, which may read K and V of an earlier layer. owner: the number of that layer; None where this layer has
    its own K and V."""

    heads: NormedHeads
    owner: int | None
    feed: LayerFeed


@architecture(
    "Gemma4ForCausalLM", "Gemma4UnifiedForCausalLM", model_type="gemma4_text", other_types=("gemma4_unified_text",)
)
def gemma4(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Gemma 4. Each of the last num_kv_shared_layers layers reads K and V of the last layer of its type before
    them."""
    if fields.text("use_bidirectional_attention", "") == "all":
        refuse_setting(fields, "use_bidirectional_attention", "Each position would see those after it.")
    parts = read_parts(fields, defaults("gemma4_text"), act=("hidden_activation", "gelu_pytorch_tanh"))
    fields, facts, norm = parts.fields, parts.facts, parts.norm
    layers = _layers(parts)
    per_layer = _per_layer(parts)
    decoder = replace(
        parts.decoder,
        embedding_scale=rounded_to(facts.dtype, facts.hidden_size**0.5),
        soft_cap=fields.optional_number("final_logit_softcapping", 1e-3, 1e6) or 0.0,
    )

    def text(t: Tracer) -> Value:
        x = _embedded(t, decoder)
        inputs = per_layer.inputs(t, x) if per_layer else ()
        caches: list[Cache] = []
        for index, layer in enumerate(layers):
            with t.layer(f"{decoder.layers}.{index}."):
                owner = None if layer.owner is None else caches[layer.owner]
                seen, cache = attend_owned(t, layer.heads, norm(t, "input_layernorm", x), owner)
                caches.append(cache)
                x = add(x, norm(t, "post_attention_layernorm", seen, in_place=True))
                made = layer.feed(t, x, norm(t, "pre_feedforward_layernorm", x))
                x = add(x, norm(t, "post_feedforward_layernorm", made, in_place=True))
                x = add(x, per_layer(t, x, inputs[index])) if per_layer else x
                x = scale_columns(x, t.vector("layer_scalar", 1, suffix=""))
        return head(t, decoder, x)

    unread = tuple(
        f"{decoder.layers}.{index}.self_attn.{name}."
        for index, layer in enumerate(layers)
        if layer.owner is not None
        for name in ("k_proj", "v_proj", "k_norm", "v_norm")
    )
    return replace(facts, ignored=(*facts.ignored, *unread)), text


@architecture(
    "Gemma4ForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration",
    model_type="gemma4",
    other_types=("gemma4_unified",),
)
def gemma4_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has encoders for images and sounds."""
    return language_model(fields, "Gemma4ForCausalLM")


def _embedded(t: Tracer, decoder: Decoder) -> Value:
    table = t.matrix("embedding", {decoder.embedding: decoder.vocab_size}, decoder.hidden_size)
    return scale(embed(table, t.token_ids, t), decoder.embedding_scale)


def _layers(parts: Parts) -> tuple[SharingLayer, ...]:
    fields, count = parts.fields, parts.facts.num_layers
    types = _types(fields, count)
    shared = fields.integer("num_kv_shared_layers", 0, count - 1, default=0)
    try:
        owner = owners(types, shared)
    except ValueError as error:
        raise fields.wrong("num_kv_shared_layers", f"{error}.") from error
    wide = fields.boolean("use_double_wide_mlp", False)
    feeds = {of: _feed(parts, replace(parts.feed, inner_size=of * parts.feed.inner_size)) for of in (1, 2)}
    heads = _heads(parts, types)
    for own, at in zip(heads, owner, strict=True):
        if at is not None and (own.head_dim, own.num_kv_heads) != (heads[at].head_dim, heads[at].num_kv_heads):
            raise fields.wrong("per_layer_config", "Layers that share K and V must have equal heads.")
    return tuple(
        SharingLayer(own, at, feeds[2 if wide and at is not None else 1]) for own, at in zip(heads, owner, strict=True)
    )


def _types(fields: Fields, count: int) -> tuple[str, ...]:
    """Returns the type of each layer. The last is full, as in transformers."""
    types = fields.texts("layer_types") or tuple(SLIDING if (index + 1) % 6 else FULL for index in range(count))
    if len(types) != count or any(kind not in (SLIDING, FULL) for kind in types):
        raise fields.wrong("layer_types", f"It must say {FULL} or {SLIDING} {count} times.")
    return (*types[:-1], FULL)


def _heads(parts: Parts, types: tuple[str, ...]) -> tuple[NormedHeads, ...]:
    """Returns the heads of each layer. Only layers without a window take V from K's product."""
    fields, usual = parts.fields, parts.heads
    same = fields.boolean("attention_k_eq_v", False)
    window = fields.integer("sliding_window", 1, MAX_POSITIONS)
    biased = fields.boolean("attention_bias", False)
    heads = []
    for index, kind in enumerate(types):
        full = kind == FULL
        dim, kv = _head_sizes(parts, index, full)
        turn = ropes_by_layer_type(fields, dim, parts.facts.max_positions, THETAS, FULL)[kind]
        sizes = (usual.hidden_size, usual.num_heads, kv, dim)
        heads.append(NormedHeads(*sizes, parts.norm.eps, turn, 0 if full else window, biased, same and full))
    return tuple(heads)


def _head_sizes(parts: Parts, index: int, full: bool) -> tuple[int, int]:
    """Returns head_dim and the number of K/V heads of a layer, from per_layer_config. In older configs, a layer without
    a window has global_head_dim and num_global_key_value_heads."""
    fields, dim, kv = parts.fields, parts.heads.head_dim, parts.heads.num_kv_heads
    layers = fields.value("per_layer_config")
    own = Fields({}, fields.place)
    if isinstance(layers, dict) and layers:
        said = {str(name): value for name, value in layers.items()}
        own = Fields(said, f"{fields.place}: per_layer_config").group(str(index)) or own
    elif full:
        dim = fields.integer("global_head_dim", 2, 4096, default=512)
        older = fields.optional_integer("num_global_key_value_heads", 1, 4096)
        kv = older if older and fields.boolean("attention_k_eq_v", False) else kv
    unknown = sorted(set(own.values) - {"head_dim", "num_key_value_heads"})
    if unknown:
        raise UnsupportedModel(
            f"{own.place} has {', '.join(unknown)[:80]}.",
            why="Layers of this family differ in head_dim and num_key_value_heads.",
            fix="Use a model whose layers are the same in all else.",
        )
    kv = own.integer("num_key_value_heads", 1, 4096, default=kv)
    if parts.heads.num_heads % kv:
        raise own.wrong("num_key_value_heads", f"It must divide the {parts.heads.num_heads} heads.")
    return own.integer("head_dim", 2, 4096, default=dim), kv


def _feed(parts: Parts, feed: Feed) -> LayerFeed:
    """Returns the dense block, or its sum with experts that read the residual through a norm of their own."""
    fields, norm, hidden = parts.fields, parts.norm, parts.facts.hidden_size
    if not fields.boolean("enable_moe_block", False):
        return lambda t, _residual, h: feed(t, h)
    count = fields.integer("num_experts", 1, MOST_EXPERTS)
    rule = RouteRule(fields.integer("top_k_experts", 1, count), normalised=True)
    shape = BankShape(count, hidden, fields.integer("moe_intermediate_size", 1, 1 << 20))

    def router(t: Tracer, x: Value) -> Value:
        h = rms_norm(x, t.vector("router.scale", hidden, suffix=""), norm.eps)
        logits = scale(linear(h, t.matrix("router", {"router.proj": count}, hidden)), hidden**-0.5)
        return route(logits, rule, shares=t.vector("router.per_expert_scale", count, suffix=""))

    stacks = Stacks("experts.gate_up_proj", "experts.down_proj")
    block = Mixture(shape, router, stacks, ExpertRule(feed.activation))

    def both(t: Tracer, residual: Value, h: Value) -> Value:
        made = norm(t, "post_feedforward_layernorm_1", feed(t, h), in_place=True)
        rows = norm(t, "pre_feedforward_layernorm_2", residual)
        chosen = block.of_routes(t, rows, router(t, residual))
        return add(made, norm(t, "post_feedforward_layernorm_2", chosen, in_place=True))

    return both


def _per_layer(parts: Parts) -> PerLayer | None:
    fields, facts = parts.fields, parts.facts
    name = "hidden_size_per_layer_input"
    width = fields.optional_integer(name, 0, 1 << 16) or (0 if fields.has(name) else 256)
    if not width:
        return None
    rows = fields.integer("vocab_size_per_layer_input", 1, 1 << 24)
    return PerLayer(
        facts.vocab_size,
        rows,
        facts.hidden_size,
        facts.num_layers,
        width,
        rounded_to(facts.dtype, width**0.5),
        parts.norm,
        parts.feed.activation,
    )
