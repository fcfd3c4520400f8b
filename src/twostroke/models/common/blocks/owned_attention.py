"""Attention of Gemma 3n and Gemma 4: norms on q, k and v, and scores that are not scaled. Some layers read the K and V
of an earlier layer."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.attend import HeadCounts
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.attention.rope import rope
from twostroke.ops.products.linear import linear
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Cache, PagedKV, Rope, Value, join
from twostroke.types.spec.rope import RopeSpec


@dataclass(frozen=True, slots=True)
class NormedHeads(HeadCounts):
    """The heads of one layer. window: the number of positions that a row sees, 0 for all. bias: whether the products
    for q, k, v and the output have biases.

    values_are_keys: there is no product for V; V is K before its norm and its rotation.
    """

    eps: float
    turn: RopeSpec
    window: int = 0
    bias: bool = False
    values_are_keys: bool = False


def attend_owned(t: Tracer, shape: NormedHeads, h: Value, owner: Cache | None) -> tuple[Value, Cache]:
    """Returns the block's output for the normed rows h, before it is added to the residual, and the cache that the
    block read.

    owner: the cache of an earlier layer whose K and V this layer reads; None where the layer has its own.
    """
    norm, table = Norm(shape.eps), Rope(shape.turn)
    if owner is not None:
        q = linear(h, t.matrix("q", {"self_attn.q_proj": shape.query}, shape.hidden_size, bias=shape.bias))
        q = rope(norm.of_heads(t, "self_attn.q_norm", q.heads(shape.num_heads)), table, t.positions)
        return _seen(t, shape, q, owner), owner
    q, k, v = _products(t, shape, h)
    q = norm.of_heads(t, "self_attn.q_norm", q.heads(shape.num_heads))
    k = norm.of_heads(t, "self_attn.k_norm", k.heads(shape.num_kv_heads))
    v = Norm(shape.eps, NormKind.UNIT).of_heads(t, "", v.heads(shape.num_kv_heads))
    turned = rope(join(q, k), table, t.positions).flat()
    q, k = turned.columns(0, shape.query).heads(shape.num_heads), turned.columns(shape.query, shape.kv)
    cache = t.cache(PagedKV(shape.num_kv_heads, shape.head_dim, shape.window))
    kv_write(cache, k.heads(shape.num_kv_heads), v, t.slots)
    return _seen(t, shape, q, cache), cache


def _products(t: Tracer, shape: NormedHeads, h: Value) -> tuple[Value, Value, Value]:
    outputs = {"self_attn.q_proj": shape.query, "self_attn.k_proj": shape.kv, "self_attn.v_proj": shape.kv}
    if not shape.values_are_keys:
        joined = linear(h, t.matrix("qkv", outputs, shape.hidden_size, bias=shape.bias))
        q, k, v = joined.split(shape.query, shape.kv, shape.kv)
        return q, k, v
    del outputs["self_attn.v_proj"]
    q, k = linear(h, t.matrix("qk", outputs, shape.hidden_size, bias=shape.bias)).split(shape.query, shape.kv)
    # Norms and rotations write over their input, so V is a copy.
    return q, k, take_columns(k, t.constant("order", tuple(float(column) for column in range(shape.kv))))


def _seen(t: Tracer, shape: NormedHeads, q: Value, cache: Cache) -> Value:
    seen = attention(q, cache, 1.0).flat()
    return linear(seen, t.matrix("o", {"self_attn.o_proj": shape.hidden_size}, shape.query, bias=shape.bias))


def owners(types: tuple[str, ...], shared: int) -> tuple[int | None, ...]:
    """Returns for each layer the layer whose K and V it reads, or None for its own. The last `shared` layers have no K
    and V of their own. Each of them reads those of the last other layer that has its type. Raises ValueError where
    there is no such layer."""
    first = len(types) - shared
    last = {kind: index for index, kind in enumerate(types[:first])}
    if any(kind not in last for kind in types[first:]):
        raise ValueError("no layer of this type has K and V of its own")
    return (*(None for _ in range(first)), *(last[kind] for kind in types[first:]))
