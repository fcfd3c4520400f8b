"""Latent attention to positions that an index of small keys chooses (sparse attention; DeepSeek-AI 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.latent import (
    LatentHeads,
    head_gate,
    keep_latents,
    output,
    queries,
    query_latent,
    rotation,
)
from twostroke.ops.attention.chosen_latent_attention import chosen_latent_attention
from twostroke.ops.attention.index_select import index_select
from twostroke.ops.attention.latent_write import latent_write
from twostroke.ops.attention.rope import rope
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import HeadRows, LatentKV, Tensor, Value
from twostroke.ops.rows.expressions import scale
from twostroke.ops.rows.layer_norm import layer_norm
from twostroke.ops.rows.multiply import multiply

INDEX_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Index:
    """The index that chooses the positions of sparse attention. heads, dim: the number and size of the heads of the
    index's queries; its keys have one head. chosen: the most positions that a row attends to. turned_last: the rotation
    (RoPE) applies to the last elements of a head in the checkpoint, otherwise to the first. interleaved: the
    checkpoint's rotary pairs lie side by side. eps: the epsilon of the norm of keys."""

    heads: int
    dim: int
    chosen: int
    interleaved: bool = False
    turned_last: bool = False
    eps: float = INDEX_EPS

    def orders(self, heads: int, turned: int) -> tuple[HeadRows | None, ...]:
        """Returns in which order the rows of a matrix that makes `heads` heads are read, so that the rotated rows come
        first in each head. turned: the number of rotated rows of a head. Each member stands for some of the rows; None
        means all of them, as they are stored."""
        dim, plain = self.dim, self.dim - turned
        if self.turned_last:
            parts = ((turned, plain), (plain, 0))
            return tuple(HeadRows(1, dim, count, head * dim + at) for head in range(heads) for count, at in parts)
        return (HeadRows(heads, dim, dim, pairs=turned // 2) if self.interleaved else None,)


def attend_chosen(t: Tracer, shape: LatentHeads, index: Index, h: Value) -> Value:
    """Returns the output of the attention block for the normed rows h, before it is added to the residual."""
    return attend_found(t, shape, index, h, None)[0]


def attend_found(t: Tracer, shape: LatentHeads, index: Index, h: Value, found: Value | None) -> tuple[Value, Value]:
    """Returns the output of the attention block, and the positions that each row attends to. found: the positions that
    an earlier layer has chosen for each row; None where this layer's own index chooses them."""
    cache, latent = keep_latents(t, shape, h), query_latent(t, shape, h)
    chosen = choose(t, shape, index, h, latent) if found is None else found
    asked, turned = queries(t, shape, latent)
    seen = chosen_latent_attention(asked, turned, chosen, cache, shape.scale)
    return output(t, shape, seen, head_gate(t, shape, h)), chosen


def choose(t: Tracer, shape: LatentHeads, index: Index, h: Value, latent: Value, factor: Value | None = None) -> Value:
    """Returns the positions that each row attends to. The index makes its keys and the weights of its heads from the
    normed rows h, and its queries from `latent`. factor: (T, heads), multiplies the queries of each head; None for no
    factor."""
    orders, dim, prefix = index.orders(1, shape.turned), index.dim, f"{shape.name}.indexer."
    keys = linear(h, t.selected("index_keys", f"{prefix}wk", dim, shape.hidden_size, orders))
    weight, bias = (
        t.vector_of(tuple(Tensor(t.name(f"{prefix}k_norm.{part}"), (dim,), order=order) for order in orders), dim)
        for part in ("weight", "bias")
    )
    keys = layer_norm(keys, weight, bias, index.eps, in_place=True)
    if shape.turn:
        keys = rope(keys.heads(1), rotation(t, shape, shape.turn), t.positions).flat()
    cache = t.cache(LatentKV(1, dim, 0, dim))
    latent_write(cache, keys, t.slots)
    width, orders = index.heads * dim, index.orders(index.heads, shape.turned)
    made = linear(latent, t.selected("index_queries", f"{prefix}wq_b", width, latent.width, orders))
    made = made if factor is None else multiply(made, factor)
    asked = made.heads(index.heads)
    if shape.turn:
        asked = rope(asked, rotation(t, shape, shape.turn), t.positions)
    weights = linear(h, t.matrix("router", {f"{prefix}weights_proj": index.heads}, shape.hidden_size))
    return index_select(asked, scale(weights, width**-0.5), cache, index.chosen)
