"""Attention with relative position terms: scores depend on the bucket of the distance between two positions.

Sources: Raffel et al. 2020 (T5), Song et al. 2020 (MPNet), He et al. 2021 (DeBERTa).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from twostroke.models.common.blocks.attend import Heads
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.attention.placed_attention import placed_attention
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import PagedKV, Tensor, Value, Vector


@dataclass(frozen=True, slots=True)
class Beside:
    """The terms for relative positions that are added to the scores. The distance between query and key decides the
    bucket, and the bucket decides the term. table: one number for each head and bucket. by_row, by_key: a number for
    each bucket, made from the query's row or the key's row. See ops/attention/placed_attention.py. A field is None
    where there is no such term."""

    table: Vector | None = None
    by_row: Value | None = None
    by_key: Value | None = None


BesideText = Callable[[Tracer, Value, Value], Beside]
"""`beside(trace, q, k)` returns the relative position terms of the scores, from the heads of q and k (T, H, D)."""


def placed_attend(t: Tracer, shape: Heads, h: Value, places: tuple[float, ...], beside: BesideText) -> Value:
    """Returns the output of an attention block with relative position terms, before it is added to the residual. h: the
    rows. places: the bucket of each distance from -R to R, where a distance is a key's position minus a row's. beside:
    makes the terms from q and k."""
    names = shape.names
    outputs = {names.q: shape.query, names.k: shape.kv, names.v: shape.kv}
    made = linear(h, t.matrix("qkv", outputs, shape.hidden_size, bias=shape.qkv_bias))
    q, k, v = (part.heads(shape.num_heads) for part in made.split(*outputs.values()))
    found = beside(t, q, k)
    cache = t.cache(PagedKV(shape.num_kv_heads, shape.head_dim, ahead=shape.ahead))
    kv_write(cache, k, v, t.slots)
    seen = placed_attention(
        q,
        cache,
        shape.scale or shape.head_dim**-0.5,
        t.constant("places", places),
        table=found.table,
        by_row=found.by_row,
        by_key=found.by_key,
    )
    return linear(seen.flat(), t.matrix("o", {names.o: shape.hidden_size}, shape.query, bias=shape.output_bias))


def bias_table(t: Tracer, name: str, count: int, heads: int) -> Vector:
    """Returns the table of relative position terms: the numbers of a tensor (buckets of distances, heads), head by
    head."""
    return t.vector_of((Tensor(t.name(f"{name}.weight"), (count, heads), transposed=True),), count * heads)


def t5_places(count: int, longest: int) -> tuple[float, ...]:
    """Returns for each distance -longest .. longest its bucket, below `count`. Half of the buckets are for keys after
    the row's position. Each short distance has a bucket of its own. Longer distances share buckets in ever wider
    ranges, up to `longest` (Raffel et al. 2020)."""
    half = count // 2
    single = half // 2

    def place(away: int) -> int:
        size = abs(away)
        if size >= single:
            wide = math.log(size / single) / math.log(longest / single) * (half - single)
            size = min(half - 1, single + int(wide))
        return size + (half if away > 0 else 0)

    return tuple(float(place(away)) for away in range(-longest, longest + 1))


def deberta_places(buckets: int, longest: int) -> tuple[float, ...]:
    """Returns the bucket of each distance. Far distances share buckets where `buckets` is above 0 (He et al. 2021).
    Numbers of buckets grow with the row's position minus the key's. Distance 0 has bucket `buckets`, or `longest` where
    `buckets` is 0."""
    span, middle = buckets or longest, buckets // 2

    def place(apart: int) -> int:
        if buckets and abs(apart) > middle:
            wide = math.log(abs(apart) / middle) / math.log((longest - 1) / middle) * (middle - 1)
            apart = int(math.copysign(math.ceil(wide) + middle, apart))
        return min(max(apart + span, 0), 2 * span - 1)

    # From this distance on, all positions have the first or the last place.
    reach = next(away for away in range(1, 1 << 24) if place(away) == 2 * span - 1 and place(-away) == 0)
    return tuple(float(place(-away)) for away in range(-reach, reach + 1))
