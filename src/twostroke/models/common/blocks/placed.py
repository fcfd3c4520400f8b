"""Attention whose scores depend on how far apart two positions are, by classes of distances.

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
    """What scores have next to the products, see ops/attention/placed_attention.py; None where there is none."""

    table: Vector | None = None
    by_row: Value | None = None
    by_key: Value | None = None


BesideText = Callable[[Tracer, Value, Value], Beside]
"""`beside(trace, q, k)` makes what is added to the scores, from the heads of q and k (T, H, D)."""


def placed_attend(t: Tracer, shape: Heads, h: Value, places: tuple[float, ...], beside: BesideText) -> Value:
    """The block's output for the rows h, not yet added. places: the place of each distance -R .. R, which is a key's
    position minus a row's.
    """
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
    """The numbers of a tensor (places, heads), head by head."""
    return t.vector_of((Tensor(t.name(f"{name}.weight"), (count, heads), transposed=True),), count * heads)


def t5_places(count: int, longest: int) -> tuple[float, ...]:
    """`count` places, half of them of keys after the row's position: single distances, then ever more in one, up to
    `longest` (Raffel et al. 2020)."""
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
    """Distances, of which far ones share a place where there are `buckets`; 0 for none (He et al. 2021). Place `span`
    is that of distance 0, and a row's position less a key's counts up."""
    span, middle = buckets or longest, buckets // 2

    def place(apart: int) -> int:
        if buckets and abs(apart) > middle:
            wide = math.log(abs(apart) / middle) / math.log((longest - 1) / middle) * (middle - 1)
            apart = int(math.copysign(math.ceil(wide) + middle, apart))
        return min(max(apart + span, 0), 2 * span - 1)

    # After this distance the last place has everything.
    reach = next(away for away in range(1, 1 << 24) if place(away) == 2 * span - 1 and place(-away) == 0)
    return tuple(float(place(-away)) for away in range(-reach, reach + 1))
