"""The attention block that dense families share: product, norms of q and k, rotation, cache, attention, product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from twostroke.models.common.blocks.norm import Norm
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.attention.rope import rope
from twostroke.ops.attention.rope_tables import mean_rotation
from twostroke.ops.products.linear import linear
from twostroke.ops.program.ranks import pieces_of
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import HeadRows, PagedKV, Rope, Tensor, Value, Vector, VectorForm, Weight, join
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import clamp, shift_columns
from twostroke.ops.rows.multiply import multiply
from twostroke.types.spec.rope import RopeKind, RopeSpec

MEAN_POSITIONS = 8192
"""The most positions over which the mean of a rotated bias is taken. Any vector would be right. On Qwen2.5-Coder 1.5B,
4,096 and 16,384 positions give errors within 2% of each other."""
JoinedText = Callable[[Tracer, "Heads"], Weight]
"""joined(trace, heads) returns the matrix of q, k and v, made from tensors that a family stores in its own way."""


@dataclass(frozen=True, slots=True)
class AttentionNames:
    """The names of an attention block's tensors, without ".weight". A name is empty where there is no such tensor.

    gate: the product whose result, through a sigmoid, multiplies the heads' output. gate_bias: the full name of its
    bias, one number for each head. sinks: for each query head, one further score that has no key and no value.
    inner_norm: the norm of the heads' output, before the last product.
    """

    q: str = "self_attn.q_proj"
    k: str = "self_attn.k_proj"
    v: str = "self_attn.v_proj"
    o: str = "self_attn.o_proj"
    q_norm: str = "self_attn.q_norm"
    k_norm: str = "self_attn.k_norm"
    gate: str = ""
    gate_bias: str = ""
    sinks: str = ""
    inner_norm: str = ""


@dataclass(frozen=True, slots=True)
class HeadCounts:
    """How many heads a block has and how wide they are. hidden_size: the width of the rows that it reads."""

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def query(self) -> int:
        """The number of elements of all query heads."""
        return self.num_heads * self.head_dim

    @property
    def kv(self) -> int:
        """The number of elements of all K heads, which is also that of all V heads."""
        return self.num_kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Heads(HeadCounts):
    """The settings that all attention blocks of a model have in common.

    scale: the factor of the scores, 0 for 1 / sqrt(head_dim). head_norm: the norm of each head of q and k, before the
    rotation, or after it where `norm_after_rope`. wide_norm: the norm of the whole of q and of k. interleaved: the
    checkpoint's rotary pairs lie side by side. slopes: the slopes of ALiBi, one for each query head. gated: q's tensor
    has the rows of a gate after those of each head; the head's output is multiplied by the gate's sigmoid.
    query_growth: how much queries grow with the logarithm of their position, see RopeSpec. Heads with such a growth
    must be rotated whole. ahead: how many later positions a query sees, 0 for causal attention. gates: the number of
    gates that the product names.gate makes from a row. The elements of all heads are divided evenly among the gates,
    and each gate multiplies its share; 0 means a gate for each element. gate_function: the function that is applied to
    the gates. clip: q, k and v are clipped to -clip .. clip, before the norms of heads and the rotation; 0 for no
    limit. inner_norm: the norm of the output of all heads, before the last product (BitNet).
    """

    scale: float = 0.0
    qkv_bias: bool = False
    output_bias: bool = False
    head_norm: Norm | None = None
    norm_after_rope: bool = False
    wide_norm: Norm | None = None
    interleaved: bool = False
    soft_cap: float = 0.0
    slopes: tuple[float, ...] = ()
    names: AttentionNames = AttentionNames()
    joined: JoinedText | None = None
    gated: bool = False
    query_growth: float = 0.0
    ahead: int = 0
    gates: int = 0
    gate_function: Activation = Activation.SIGMOID
    clip: float = 0.0
    inner_norm: Norm | None = None


def joined_by_head(name: str) -> JoinedText:
    """Reads q, k and v from one tensor that is grouped by KV heads: the rows of the group's query heads, then those of
    its k and its v."""

    def joined(t: Tracer, shape: Heads) -> Weight:
        group = shape.num_heads // shape.num_kv_heads
        dim, step = shape.head_dim, (group + 2) * shape.head_dim
        q = HeadRows(shape.num_kv_heads, step, group * dim)
        k, v = (HeadRows(shape.num_kv_heads, step, dim, (group + place) * dim) for place in (0, 1))
        rows = shape.num_kv_heads * step
        return t.selected("qkv", name, rows, shape.hidden_size, (q, k, v), bias=shape.qkv_bias)

    return joined


def joined_in_order(name: str) -> JoinedText:
    """Reads q, k and v from one tensor that has first all rows of q, then those of k, then those of v."""

    def joined(t: Tracer, shape: Heads) -> Weight:
        return t.matrix("qkv", {name: shape.query + 2 * shape.kv}, shape.hidden_size, bias=shape.qkv_bias)

    return joined


def joined_of_pairs(name: str) -> JoinedText:
    """Reads q, k and v from one tensor, first all rows of q, then k, then v. The two rows of each rotary pair of q and
    k are neighbours in it."""

    def joined(t: Tracer, shape: Heads) -> Weight:
        dim, pairs = shape.head_dim, shape.head_dim // 2
        q = HeadRows(shape.num_heads, dim, dim, pairs=pairs)
        k = HeadRows(shape.num_kv_heads, dim, dim, shape.query, pairs)
        v = HeadRows(shape.num_kv_heads, dim, dim, shape.query + shape.kv)
        rows = shape.query + 2 * shape.kv
        return t.selected("qkv", name, rows, shape.hidden_size, (q, k, v), bias=shape.qkv_bias)

    return joined


def attend(
    t: Tracer, shape: Heads, h: Value, *, window: int = 0, turn: RopeSpec | None = None, chunked: bool = False
) -> Value:
    """Returns the output of an attention block for the normed rows h, before it is added to the residual. window: the
    number of positions that a row sees, 0 for all. turn: the rotation of this layer; None for no rotation.

    chunked: a row sees only positions from the last multiple of `window` on.
    """
    matrix = shape.joined(t, shape) if shape.joined else _joined(t, shape, turn)
    joined = linear(h, matrix)
    *gates, q, k, v = joined.split(*([shape.query] * (1 + shape.gated)), shape.kv, shape.kv)
    if shape.wide_norm:
        q = shape.wide_norm(t, shape.names.q_norm, q, in_place=True)
        k = shape.wide_norm(t, shape.names.k_norm, k, in_place=True)
    if shape.clip:
        q, k, v = clamp(join(q, k, v), shape.clip).split(shape.query, shape.kv, shape.kv)
    q, k = q.heads(shape.num_heads), k.heads(shape.num_kv_heads)
    if shape.head_norm and not shape.norm_after_rope:
        q, k = _normed(t, shape, shape.head_norm, q, k, turn)
    if turn and (shape.query_growth or turn.power):
        q = rope(q, Rope(replace(turn, growth=shape.query_growth)), t.positions)
        k = k if turn.still else rope(k, Rope(turn), t.positions)
    elif turn:
        turned = rope(join(q, k), Rope(turn), t.positions).flat()
        q, k = turned.columns(0, shape.query).heads(shape.num_heads), turned.columns(shape.query, shape.kv)
        k = k.heads(shape.num_kv_heads)
    if shape.head_norm and shape.norm_after_rope:
        q, k = _normed(t, shape, shape.head_norm, q, k, turn)
    if _may_shift_keys(shape, turn):
        k = shift_columns(k.flat(), _shared_bias(t, shape, matrix, turn)).heads(shape.num_kv_heads)
    cache = t.cache(PagedKV(shape.num_kv_heads, shape.head_dim, window, chunked=chunked, ahead=shape.ahead))
    kv_write(cache, k, v.heads(shape.num_kv_heads), t.slots)
    sinks = t.vector(shape.names.sinks, shape.num_heads, suffix="") if shape.names.sinks else None
    factor = shape.scale or shape.head_dim**-0.5
    seen = attention(q, cache, factor, soft_cap=shape.soft_cap, sinks=sinks, slopes=_slopes(t, shape))
    if shape.names.gate:
        gates = [linear(h, _gate(t, shape))]
    seen = multiply(seen, gates[0], shape.gate_function) if gates else seen.flat()
    if shape.inner_norm:
        seen = shape.inner_norm(t, shape.names.inner_norm, seen, in_place=True)
    return linear(seen, t.matrix("o", {shape.names.o: shape.hidden_size}, shape.query, bias=shape.output_bias))


def _may_shift_keys(shape: Heads, turn: RopeSpec | None) -> bool:
    """Returns whether the same vector may be subtracted from all keys of a head, and would help. All scores of a query
    then change by one number, which a softmax ignores. The bias must reach the cache as it is: without a norm, a
    clipping, or a table that depends on the context's length. No sink or soft cap may compare the scores with anything
    else."""
    changed = shape.wide_norm or shape.head_norm or shape.clip
    turned = turn and (turn.power or turn.back or turn.still or turn.kind in (RopeKind.LONGROPE, RopeKind.DYNAMIC))
    compared = shape.names.sinks or shape.soft_cap
    return shape.qkv_bias and not shape.ahead and not changed and not turned and not compared


def _shared_bias(t: Tracer, shape: Heads, matrix: Weight, turn: RopeSpec | None) -> Vector:
    """Returns the part of the keys' bias that nearly all positions share: the mean of the rotated bias over the trained
    positions, MEAN_POSITIONS at most. Published models have their largest biases in pairs that hardly rotate."""
    first = shape.query * (1 + shape.gated)
    parts = tuple(pieces_of(matrix.bias, first, first + shape.kv))
    means = mean_rotation(turn, min(MEAN_POSITIONS, turn.original_positions)) if turn else ((), ())
    numbers = (float(shape.head_dim), *means[0], *means[1])
    return t.vector_of(parts, shape.kv, form=VectorForm.SHARED_BIAS, numbers=numbers)


def _joined(t: Tracer, shape: Heads, turn: RopeSpec | None) -> Weight:
    names = shape.names
    if shape.gated:
        return _gated(t, shape)
    outputs = {names.q: shape.query, names.k: shape.kv, names.v: shape.kv}
    orders = halves_of_pairs(shape, turn) if shape.interleaved and turn else {}
    return t.matrix("qkv", outputs, shape.hidden_size, bias=shape.qkv_bias, orders=orders)


def halves_of_pairs(shape: Heads, turn: RopeSpec) -> dict[str, HeadRows]:
    """Returns, for the tensors of q and k, the order in which their rows are read. The checkpoint stores both elements
    of a rotary pair next to each other. In this order the first elements of all pairs come first, then the second ones.
    """
    counts = {shape.names.q: shape.num_heads, shape.names.k: shape.num_kv_heads}
    pairs, dim = turn.rotary_dim // 2, shape.head_dim
    return {name: HeadRows(count, dim, dim, pairs=pairs) for name, count in counts.items()}


def _gated(t: Tracer, shape: Heads) -> Weight:
    """Returns the joined matrix of gate, q, k and v. q and k are neighbours because one op rotates them together."""
    names, dim, width = shape.names, shape.head_dim, shape.hidden_size
    gate, q = (HeadRows(shape.num_heads, 2 * dim, dim, first) for first in (dim, 0))
    wanted: list[tuple[str, int, HeadRows | None]] = [
        (names.q, 2 * shape.query, gate),
        (names.q, 2 * shape.query, q),
        (names.k, shape.kv, None),
        (names.v, shape.kv, None),
    ]
    parts = tuple(Tensor(t.name(f"{name}.weight"), (rows, width), order=order) for name, rows, order in wanted)
    biases = tuple(Tensor(t.name(f"{name}.bias"), (rows,), order=order) for name, rows, order in wanted)
    return t.weight("qkv", sum(part.length for part in parts), width, parts, biases if shape.qkv_bias else ())


def _gate(t: Tracer, shape: Heads) -> Weight:
    name, rows, width = shape.names.gate, shape.gates or shape.query, shape.hidden_size
    if not shape.names.gate_bias:
        return t.matrix("gate", {name: rows}, width)
    bias, each = t.name(shape.names.gate_bias), rows // shape.num_heads
    repeated = (HeadRows(each, 0, 1, head) for head in range(shape.num_heads))
    biases = tuple(Tensor(bias, (shape.num_heads,), order=order) for order in repeated)
    return t.weight("gate", rows, width, (Tensor(t.name(f"{name}.weight"), (rows, width)),), biases)


def _normed(t: Tracer, shape: Heads, norm: Norm, q: Value, k: Value, turn: RopeSpec | None) -> tuple[Value, Value]:
    order = None
    if shape.interleaved and turn:
        order = HeadRows(1, shape.head_dim, shape.head_dim, pairs=turn.rotary_dim // 2)
    return norm.of_heads(t, shape.names.q_norm, q, order), norm.of_heads(t, shape.names.k_norm, k, order)


def _slopes(t: Tracer, shape: Heads) -> Vector | None:
    return t.constant("slopes", shape.slopes) if shape.slopes else None
