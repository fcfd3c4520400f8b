"""ZAYA 1: attention whose q and k pass two short convolutions, experts that a small network chooses (Zyphra 2026).

Compressed convolutional attention (Figliolia et al. 2025): q and k pass a convolution of each channel and one within
each head, and the mean of q and k is added. Half of v is made from the row before. The network that chooses experts
projects a row to a small vector, and adds the vector of the layer before to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from twostroke.models.common.blocks.attend import HeadCounts
from twostroke.models.common.blocks.banks import BankShape, Stacks
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.same_rows import same_rows
from twostroke.models.common.blocks.states.mamba2 import conv_taps
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.mixture import LARGEST, expert_count
from twostroke.models.common.fields.read import Parts, read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.attention.rope import rope
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.head_linear import head_linear
from twostroke.ops.products.linear import linear
from twostroke.ops.products.route import RouteRule, route
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.values import PagedKV, Rope, Tensor, Weight, join
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate, add, scale, scale_columns
from twostroke.ops.rows.multiply import multiply
from twostroke.ops.states.short_conv import short_conv
from twostroke.ops.states.token_shift import token_shift
from twostroke.types.spec.rope import RopeSpec, ropes_by_layer_type

SILENT = defaults("zaya")
THETAS = {"hybrid": ("rope_theta", 5e6), "hybrid_sliding": ("swa_rope_theta", 1e4)}
WHOLE, WINDOW = THETAS
PARTIAL = 0.5
"""The share of a head that is rotated."""
UNIT = Norm(1e-14, NormKind.UNIT)
"""The norm of the heads of q and k: each is divided by its length. As in transformers, a length below this epsilon
counts as the epsilon."""
PROJECTION, GATE = "self_attn.qkv_proj.", "mlp.gate."


@dataclass(frozen=True, slots=True)
class Convolved(HeadCounts):
    """The heads of attention, with q and k that pass two convolutions. The first mixes positions within each channel.
    The second also mixes the channels of a head, over two positions. taps: how many positions the first one reads."""

    taps: int

    @property
    def channels(self) -> int:
        """The number of elements of q and k together."""
        return self.query + self.kv


@architecture("ZayaForCausalLM", model_type="zaya")
def zaya(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads ZAYA 1. In layer_types, hybrid_sliding layers have a window. The router's last choice is not an expert: a
    row that chooses it skips the feed-forward block."""
    silu_only(fields)
    for name in ("attention_bias", "lm_head_bias"):
        refuse_setting(fields, name, "No published model of this family has these biases.")
    parts = read_parts(fields.changed({"intermediate_size": 1}), SILENT, kv_absent=2)  # there is no dense layer
    fields, facts, counts = parts.fields, parts.facts, parts.heads
    sizes = (facts.hidden_size, counts.num_heads, counts.num_kv_heads, counts.head_dim)
    heads = Convolved(*sizes, taps=fields.integer("cca_time0", 2, 64, default=2))
    fields.integer("cca_time1", 2, 2, default=2)
    if heads.kv % 2:
        raise fields.wrong("head_dim", "The elements of v must be even in number: half come from the row before.")
    kinds = _kinds(fields, facts.num_layers)
    window = window_of(fields, 0)
    if WINDOW in kinds and not window:
        raise fields.wrong("sliding_window", f"layer_types has {WINDOW} layers.")
    turns = _turns(fields, heads.head_dim, facts.max_positions)
    experts = _mixture(fields, facts.hidden_size)
    rank = fields.integer("router_hidden_size", 1, 1 << 16)
    chain: dict[Tracer, Value] = {}

    def layer(t: Tracer, index: int, x: Value) -> Value:
        kind = kinds[index]
        h = parts.norm(t, "input_layernorm", x)
        made = _attend(t, heads, h, window if kind == WINDOW else 0, turns[kind])
        x = _added(t, "post_attention_residual_scale", x, made)
        h = parts.norm(t, "post_attention_layernorm", x)
        routes, chain[t] = _routes(t, parts, rank, h, chain[t] if index else None)
        return _added(t, "post_mlp_residual_scale", x, experts.of_routes(t, h, routes))

    def begin(t: Tracer, x: Value) -> Value:
        return _scaled(t, "model.input_hidden_states", x)

    return facts, decoder_program(replace(parts.decoder, after_embedding=begin), layer)


def _kinds(fields: Fields, layers: int) -> tuple[str, ...]:
    kinds = fields.texts("layer_types") or (WHOLE,) * layers
    if len(kinds) != layers or any(kind not in THETAS for kind in kinds):
        raise fields.wrong("layer_types", f"It must say {layers} times {WHOLE} or {WINDOW}.")
    return tuple(kinds)


def _turns(fields: Fields, head_dim: int, positions: int) -> dict[str, RopeSpec]:
    """Returns the rotation of each type of layer. rope_parameters has a group for each type. Published files also have
    a rope_type next to these groups, which is ignored, as in transformers."""
    group = fields.group("rope_parameters")
    if group is not None and any(kind in group.values for kind in THETAS):
        said = {name: value for name, value in group.values.items() if name != "rope_type"}
        fields = fields.changed({"rope_parameters": said})
    return ropes_by_layer_type(fields, head_dim, positions, THETAS, WHOLE, partial=PARTIAL)


def _mixture(fields: Fields, hidden: int) -> Mixture:
    """Reads the experts. Their rows are not chosen by a router of the usual kind: the caller passes the result of
    `_routes`."""
    fields.integer("num_experts_per_tok", 1, 1)
    count = expert_count(fields)
    return Mixture(
        BankShape(count, hidden, fields.integer("moe_intermediate_size", 1, LARGEST)),
        LinearRouter("", count, RouteRule(1)),
        Stacks("mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
        ExpertRule(idle=1),
    )


def _attend(t: Tracer, shape: Convolved, h: Value, window: int, turn: RopeSpec) -> Value:
    """Returns the block's output for the normed rows h, before it is added to the residual."""
    half = shape.kv // 2
    widths = {"q_proj": shape.query, "k_proj": shape.kv, "v_proj_current": half, "v_proj_delayed": half}
    with t.layer(PROJECTION):
        made = linear(h, t.matrix("qkv", widths, shape.hidden_size))
        qk, v = made.split(shape.channels, shape.kv)
        (v,) = token_shift(v, t.constant("delay", (0.0,) * half + (1.0,) * half))
        q, k = _convolved(t, shape, qk).split(shape.query, shape.kv)
        apart, shared = _means(t, shape, qk)
        q, k = add(q, apart).heads(shape.num_heads), add(k, shared).heads(shape.num_kv_heads)
    q, k = UNIT.of_heads(t, "", q), UNIT.of_heads(t, "", k).flat()
    factors = t.vector("self_attn.qk_norm.temp", shape.num_kv_heads, suffix="")
    k = multiply(k, same_rows(t, h.columns(0, shape.num_kv_heads), factors)).heads(shape.num_kv_heads)
    q, k = rope(q, Rope(turn), t.positions), rope(k, Rope(turn), t.positions)
    cache = t.cache(PagedKV(shape.num_kv_heads, shape.head_dim, window))
    kv_write(cache, k, v.heads(shape.num_kv_heads), t.slots)
    seen = attention(q, cache, shape.head_dim**-0.5).flat()
    return linear(seen, t.matrix("o", {"self_attn.o_proj": shape.hidden_size}, shape.query))


def _convolved(t: Tracer, shape: Convolved, qk: Value) -> Value:
    """Returns q and k after both convolutions. The second one reads pairs of neighbouring rows of the first one's
    result. Before a text's first row, transformers reads a row that is the first convolution's bias alone. To do the
    same, this function adds the bias after the pairs are made: the row before the first is zero until then."""
    channels, dim = shape.channels, shape.head_dim
    first = short_conv(qk, conv_taps(t, "conv_qk_depthwise", channels, shape.taps))
    before, now = (1.0,) * channels, (0.0,) * channels
    both = join(*token_shift(first, t.constant("before", before + now)))
    # The columns of a head's matrix are in the checkpoint's order: both taps of an element are neighbours.
    places = [range(head * dim, (head + 1) * dim) for head in range(channels // dim)]
    order = [float(tap * channels + place) for head in places for place in head for tap in range(2)]
    twice = [float(place) for head in places for place in head for _ in range(2)]
    bias = same_rows(t, first, t.vector("conv_qk_depthwise", channels, suffix=".bias"))
    rows = take_columns(both, t.constant("order", tuple(order)))
    rows = add(rows, take_columns(bias, t.constant("twice", tuple(twice))))
    return head_linear(rows.heads(channels // dim), _within_heads(t, shape)).flat()


def _within_heads(t: Tracer, shape: Convolved) -> Weight:
    """Returns for each head of q and k the matrix of the convolution within the head."""
    dim, name = shape.head_dim, t.name("conv_qk_grouped")
    heads = [(head * dim, (head + 1) * dim) for head in range(shape.channels // dim)]
    parts = tuple(Tensor(f"{name}.weight", (shape.channels, dim, 2), rows=rows) for rows in heads)
    bias = tuple(Tensor(f"{name}.bias", (shape.channels,), rows=rows) for rows in heads)
    return t.weight("convolution", dim, 2 * dim, parts, bias, experts=len(heads))


def _means(t: Tracer, shape: Convolved, qk: Value) -> tuple[Value, Value]:
    """Returns for each head of q the mean of this head and of the head of k that it reads. For each head of k, it
    returns the mean of the means of its query heads."""
    dim, group = shape.head_dim, shape.num_heads // shape.num_kv_heads
    q, k = qk.split(shape.query, shape.kv)
    repeated = [float(head // group * dim + place) for head in range(shape.num_heads) for place in range(dim)]
    means = scale(add(take_columns(k, t.constant("repeated", tuple(repeated))), q), 0.5)

    def taken(member: int) -> Value:
        columns = [(head * group + member) * dim + place for head in range(shape.num_kv_heads) for place in range(dim)]
        return take_columns(means, t.constant("member", tuple(map(float, columns))))

    return means, scale(reduce(add, map(taken, range(group))), 1 / group)


def _routes(t: Tracer, parts: Parts, rank: int, h: Value, before: Value | None) -> tuple[Value, Value]:
    """Returns two values: the expert of each row with its weight, and the router's small vector of each row, which the
    router of the next layer adds to its own. before: these vectors of the layer before, which are overwritten; None in
    the first layer."""
    with t.layer(GATE):
        read = linear(h, t.matrix("router", {"down_proj": rank}, h.width, bias=True))
        if before is not None:
            read = add(read, scale_columns(before, t.vector("router_states_scale", rank, suffix="")))
        rows = parts.norm(t, "router_mlp.norm", read)
        for name in ("fc1", "fc2"):
            product = linear(rows, t.matrix("router", {f"router_mlp.{name}": rank}, rank, bias=True))
            rows = activate(product, Activation.GELU)
        classes = expert_count(parts.fields) + 1
        logits = linear(rows, t.matrix("router", {"router_mlp.out_proj": classes}, rank))
        return route(logits, RouteRule(1), t.vector("balancing_biases", classes, suffix="")), read


def _added(t: Tracer, name: str, residual: Value, made: Value) -> Value:
    """Returns the sum of the residual and a block's output, each with a bias and a factor for each column."""
    return add(_scaled(t, f"{name}.residual", residual), _scaled(t, f"{name}.hidden_states", made))


def _scaled(t: Tracer, name: str, x: Value) -> Value:
    bias, factor = (t.vector(f"{name}_{word}", x.width, suffix="") for word in ("bias", "scale"))
    return scale_columns(add(x, same_rows(t, x, bias)), factor)
