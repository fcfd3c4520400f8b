"""Attention over the last positions and over compressed entries of all earlier ones (DeepSeek-AI 2026).

One vector of a position is both the key and the value of all heads. An entry is one such vector for several positions.
Because keys are rotated, values are rotated too, so the outputs of attention are rotated back.

In the checkpoint the rotated elements are the last of a head. Here they are the first in queries, keys and outputs. The
outputs are put back into the checkpoint's order before the next product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.ops.attention.entries import entry_cache
from twostroke.ops.attention.entry_attention import EntriesSeen, entry_attention
from twostroke.ops.attention.entry_select import entry_select
from twostroke.ops.attention.entry_write import entry_write
from twostroke.ops.attention.rope import rope
from twostroke.ops.products.head_linear import head_linear
from twostroke.ops.products.linear import linear
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Cache, Rope, Tensor, Value
from twostroke.ops.rows.expressions import scale
from twostroke.ops.states.compress import compress
from twostroke.types.spec.rope import RopeSpec


@dataclass(frozen=True, slots=True)
class EntryIndex:
    """The index that chooses, for each row, the compressed entries that it attends to. heads: the heads of its queries.
    dim: the elements of a key. chosen: the most entries that a row attends to."""

    heads: int
    dim: int
    chosen: int


@dataclass(frozen=True, slots=True)
class CompressedHeads:
    """The settings of attention over compressed entries. query_rank: the size of the latent that queries are made of.
    groups, group_rank: the output first goes through one matrix for each group of heads, whose result has group_rank
    elements. window: the number of last positions that a row sees one by one. rate: how many positions make an entry, 0
    for no entries. index: chooses the entries that a row sees; None where a row sees all. With an index, an entry is
    made of its own `rate` positions and of the `rate` positions before them. norm: the norm of latents, keys and
    entries; queries have the same norm without weights."""

    hidden_size: int
    num_heads: int
    dim: int
    query_rank: int
    groups: int
    group_rank: int
    window: int
    turn: RopeSpec
    norm: Norm
    rate: int = 0
    index: EntryIndex | None = None


def attend_compressed(t: Tracer, shape: CompressedHeads, h: Value) -> Value:
    """Returns the output of attention over the last positions and over compressed entries, before it is added to the
    residual. h: the normed rows."""
    width, heads, turn = shape.hidden_size, shape.num_heads, Rope(shape.turn)
    latent = linear(h, t.matrix("q_latent", {"attn.wq_a": shape.query_rank}, width))
    latent = shape.norm(t, "attn.q_norm", latent, in_place=True)
    made = linear(latent, t.matrix("q", {"attn.wq_b": heads * shape.dim}, shape.query_rank))
    unit = Norm(shape.norm.eps, NormKind.UNIT)
    asked = unit.of_heads(t, "", _turned_first(t, made, heads, shape.turn.rotary_dim).heads(heads))
    asked = rope(asked, turn, t.positions)
    keys = shape.norm(t, "attn.kv_norm", linear(h, t.matrix("kv", {"attn.wkv": shape.dim}, width)), in_place=True)
    keys = rope(_turned_first(t, keys, 1, shape.turn.rotary_dim).heads(1), turn, t.positions)
    near = t.cache(entry_cache(shape.dim, 1, shape.window))
    entry_write(near, keys.flat(), t.slots, t.positions, 1)
    far, chosen = _compressed(t, shape, h, latent)
    sinks = t.vector("attn.attn_sink", heads, suffix="")
    window = EntriesSeen(near, 1, shape.window)
    seen = entry_attention(asked, window, far, chosen, sinks, shape.dim**-0.5)
    return _output(t, shape, rope(seen, Rope(replace(shape.turn, undone=True)), t.positions))


def _compressed(t: Tracer, shape: CompressedHeads, h: Value, latent: Value) -> tuple[EntriesSeen | None, Value | None]:
    """Returns the entries that the layer keeps, and which of them each row attends to. The second result is None where
    rows attend to all entries. Both are None where the layer keeps no entries."""
    if not shape.rate:
        return None, None
    series = 2 if shape.index else 1
    far = EntriesSeen(_entries(t, shape, "attn.compressor", shape.dim, series, h), shape.rate)
    if shape.index is None:
        return far, None
    index, name = shape.index, "attn.indexer."
    keys = _entries(t, shape, f"{name}compressor", index.dim, series, h)
    made = linear(latent, t.matrix("index_queries", {f"{name}wq_b": index.heads * index.dim}, shape.query_rank))
    asked = _turned_first(t, made, index.heads, shape.turn.rotary_dim).heads(index.heads)
    asked = rope(asked, Rope(shape.turn), t.positions)
    weights = linear(h, t.matrix("router", {f"{name}weights_proj": index.heads}, shape.hidden_size))
    weights = scale(weights, (index.heads * index.dim) ** -0.5)
    return far, entry_select(asked, weights, keys, shape.rate, index.chosen)


def _entries(t: Tracer, shape: CompressedHeads, name: str, dim: int, series: int, h: Value) -> Cache:
    """Adds the entries that the rows h complete to a cache of compressed entries, and returns the cache. name: the
    beginning of the tensors' names. dim: the size of an entry. series: how many groups of `rate` positions an entry is
    made of, 1 or 2."""
    rows, rate = series * dim, shape.rate
    made = linear(h, t.matrix("router", {f"{name}.wkv": rows, f"{name}.wgate": rows}, shape.hidden_size))
    bias = t.vector_of((Tensor(t.name(f"{name}.ape"), (rate, rows)),), rate * rows)
    entries = shape.norm(t, f"{name}.norm", compress(made, bias, dim, rate), in_place=True)
    turn = replace(shape.turn, back=rate - 1)
    entries = rope(_turned_first(t, entries, 1, turn.rotary_dim).heads(1), Rope(turn), t.positions)
    cache = t.cache(entry_cache(dim, rate))
    entry_write(cache, entries.flat(), t.slots, t.positions, rate)
    return cache


def _output(t: Tracer, shape: CompressedHeads, seen: Value) -> Value:
    """Multiplies each group of heads of attention's result by a matrix of its own (wo_a), then all groups together by
    one matrix (wo_b)."""
    heads, dim, groups = shape.num_heads, shape.dim, shape.groups
    stored = _order(heads, dim, shape.turn.rotary_dim, back=True)
    put_back = take_columns(seen, t.constant("order", stored)).heads(groups)
    rows, columns = groups * shape.group_rank, heads * dim // groups
    name = t.name("attn.wo_a.weight")
    firsts = range(0, rows, shape.group_rank)
    parts = tuple(Tensor(name, (rows, columns), rows=(first, first + shape.group_rank)) for first in firsts)
    first = t.weight("o_groups", shape.group_rank, columns, parts, experts=groups)
    return linear(head_linear(put_back, first).flat(), t.matrix("o", {"attn.wo_b": shape.hidden_size}, rows))


def _turned_first(t: Tracer, x: Value, heads: int, turned: int) -> Value:
    """Returns x (T, heads * dim) with the rotated elements of each head moved from its end to its front. Neighbours in
    x form the pairs that are rotated. In the result, the first elements of all pairs come first, then the second
    elements."""
    return take_columns(x, t.constant("order", _order(heads, x.width // heads, turned)))


def _order(heads: int, dim: int, turned: int, *, back: bool = False) -> tuple[float, ...]:
    """Returns the order of columns that `_turned_first` takes: for each new column, the number of the old one. back:
    the order that undoes this."""
    plain = dim - turned
    own = [*range(plain, dim, 2), *range(plain + 1, dim, 2), *range(plain)]
    if back:
        own = [own.index(column) for column in range(dim)]
    return tuple(float(head * dim + column) for head in range(heads) for column in own)
