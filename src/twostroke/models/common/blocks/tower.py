"""Parts that image encoders (vision towers) share: patches times a matrix, position embeddings, layers that see the
whole tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twostroke.models.common.blocks.attend import Heads, halves_of_pairs
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.attention.rope import rope
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import ROW_NUMBERS, Cache, Indices, PagedKV, Rope, RowTurns, Tensor, Value, join
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate, add, scale, scale_columns
from twostroke.ops.rows.join_rows import join_rows
from twostroke.types.spec.rope import RopeKind, RopeSpec

COLORS = 3


@dataclass(frozen=True, slots=True)
class Patches:
    """The product that makes a row of each patch. The names of tensors have no ".weight".

    side: the side of a patch in pixels. frames: how many times the pixels of an image are repeated in a patch; 0 for a
    kernel without an axis of frames. flat: the matrix is stored as (width, pixels and colours), not as a kernel.
    """

    side: int
    width: int
    product: str
    frames: int = 0
    bias: bool = True
    flat: bool = False

    def __call__(self, t: Tracer) -> Value:
        """Returns the rows of the patches, without position embeddings."""
        columns = COLORS * max(1, self.frames) * self.side**2
        name, frames = t.name(self.product), (self.frames,) if self.frames else ()
        shape = (columns,) if self.flat else (COLORS, *frames, self.side, self.side)
        kernel = Tensor(f"{name}.weight", (self.width, *shape))
        biases = (Tensor(f"{name}.bias", (self.width,)),) if self.bias else ()
        return linear(t.given(columns), t.weight("pixels", self.width, columns, (kernel,), biases))


def with_table(t: Tracer, x: Value, table: str, places: int) -> Value:
    """Returns the rows x with a learned position embedding added to each. table: the tensor of `places` embeddings. The
    token ids of the step are the numbers of the positions."""
    return add(x, embed(t.matrix("positions", {table: places}, x.width), t.token_ids, t))


def with_given_places(t: Tracer, x: Value) -> Value:
    """Returns the rows x with a position embedding added to each. The host computes these embeddings and writes them
    before each step."""
    return add(x, t.given(x.width))


def turn_by_halves(head_dim: int, theta: float, axes: tuple[int, int] = (0, 1)) -> Rope:
    """Returns a two-dimensional rotation of heads: the first half of the pairs is rotated by the line of a patch, and
    the second half by its column. Both halves have the same frequencies.

    axes: the axis of each half, 0 for lines and 1 for columns.
    """
    quarter = head_dim // 4
    turns = RowTurns((axes[0],) * quarter + (axes[1],) * quarter, tuple(range(0, 2 * quarter, 2)) * 2)
    return Rope(RopeSpec(RopeKind.DEFAULT, theta, 4 * quarter, 1 << 16), turns=turns)


def turn_by_turns(head_dim: int, theta: float) -> Rope:
    """Returns a two-dimensional rotation of heads: the first half of the pairs is rotated by the line of a patch, and
    the second half by its column. Of the usual frequencies, lines have the even ones (0, 2 ...) and columns the odd
    ones."""
    quarter = head_dim // 4
    turns = RowTurns((0,) * quarter + (1,) * quarter, (*range(0, 2 * quarter, 2), *range(1, 2 * quarter, 2)))
    return Rope(RopeSpec(RopeKind.DEFAULT, theta, 4 * quarter, 1 << 16), turns=turns)


def turn_by_pairs(head_dim: int, theta: float) -> Rope:
    """Returns a two-dimensional rotation of heads: even pairs are rotated by the column of a patch, and odd pairs by
    its line. Pairs 2 i and 2 i + 1 have the same frequency."""
    quarter = head_dim // 4
    turns = RowTurns((1, 0) * quarter, tuple(2 * (pair // 2) for pair in range(2 * quarter)))
    return Rope(RopeSpec(RopeKind.DEFAULT, theta, 4 * quarter, 1 << 16), turns=turns)


@dataclass(frozen=True, slots=True)
class Tower:
    """The layers of an image encoder, with a norm before each block. norms: the names of a layer's two norms. turn: the
    rotation of q and k.

    scales: the names of two vectors, with one number a column, that multiply the two blocks' results; empty for none.

    after: a function that changes the rows after a layer, by the layer's index.
    """

    layers: str
    num_layers: int
    heads: Heads
    feed: Feed
    norm: Norm
    norms: tuple[str, str] = ("layer_norm1", "layer_norm2")
    turn: Rope | None = None
    after: Callable[[Tracer, int, Value], None] | None = None
    scales: tuple[str, ...] = ()

    def __call__(self, t: Tracer, x: Value) -> Value:
        """Returns the rows after the last layer."""
        return self.of_layers(t, x, self.cache(t), range(self.num_layers))

    def cache(self, t: Tracer) -> Cache:
        """Makes one cache for K and V that all layers use in turn. A tile is encoded in one step, so a layer's K and V
        are not needed after the layer."""
        return t.cache(PagedKV(self.heads.num_kv_heads, self.heads.head_dim, ahead=self.heads.ahead))

    def of_layers(self, t: Tracer, x: Value, cache: Cache, layers: range) -> Value:
        """Applies the layers `layers` to the rows x and returns the rows."""
        for index in layers:
            with t.layer(f"{self.layers}{index}."):
                x = self.attended(t, x, cache)
                x = add(x, self._scaled(t, 1, self.feed(t, self.norm(t, self.norms[1], x))))
            if self.after:
                self.after(t, index, x)
        return x

    def attended(self, t: Tracer, x: Value, cache: Cache) -> Value:
        """Applies the attention block of a layer and returns the rows x with its output added."""
        shape = self.heads
        h = self.norm(t, self.norms[0], x)
        names = {shape.names.q: shape.query, shape.names.k: shape.kv, shape.names.v: shape.kv}
        orders = halves_of_pairs(shape, self.turn.spec) if shape.interleaved and self.turn else {}
        matrix = shape.joined(t, shape) if shape.joined else None
        matrix = matrix or t.matrix("qkv", names, shape.hidden_size, bias=shape.qkv_bias, orders=orders)
        q, k, v = self._turned(t, linear(h, matrix))
        kv_write(cache, k, v.heads(shape.num_kv_heads), t.slots)
        seen = attention(q, cache, shape.head_dim**-0.5)
        out = {shape.names.o: shape.hidden_size}
        made = linear(seen.flat(), t.matrix("o", out, shape.query, bias=shape.output_bias))
        return add(x, self._scaled(t, 0, made))

    def _scaled(self, t: Tracer, block: int, made: Value) -> Value:
        return scale_columns(made, t.vector(self.scales[block], made.width, suffix="")) if self.scales else made

    def _turned(self, t: Tracer, joined: Value) -> tuple[Value, Value, Value]:
        shape = self.heads
        q, k, v = joined.split(shape.query, shape.kv, shape.kv)
        if shape.wide_norm:
            q = shape.wide_norm(t, shape.names.q_norm, q, in_place=True)
            k = shape.wide_norm(t, shape.names.k_norm, k, in_place=True)
        q, k = q.heads(shape.num_heads), k.heads(shape.num_kv_heads)
        if shape.head_norm:
            q = shape.head_norm.of_heads(t, shape.names.q_norm, q)
            k = shape.head_norm.of_heads(t, shape.names.k_norm, k)
        if self.turn is None:
            return q, k, v
        both = join(q, k)
        turned = rope(both, self.turn, ROW_NUMBERS).flat()
        q, k = turned.columns(0, shape.query), turned.columns(shape.query, shape.kv)
        return q.heads(shape.num_heads), k.heads(shape.num_kv_heads), v


def by_channel(t: Tracer, joined: Value, width: int) -> Value:
    """Returns joined rows, which consist of parts with `width` elements, in another order: the elements with the same
    index in all parts become neighbours. A convolution that merges patches reads this order."""
    group = joined.width // width
    order = tuple(float(part * width + column) for column in range(width) for part in range(group))
    return take_columns(joined, t.constant("by_channel", order))


def mean_rows(x: Value, rows: Indices, group: int) -> Value:
    """Returns the mean of each group of `group` neighbouring rows of x. rows: the groups to compute, by number."""
    return mean_of(join_rows(x, rows, group), group)


def mean_of(joined: Value, group: int) -> Value:
    """Returns the mean of the `group` rows that were joined into one row."""
    total, *others = joined.split(*[joined.width // group] * group)
    for other in others:
        total = add(total, other)
    return scale(total, 1 / group)


def merged(
    t: Tracer, x: Value, group: int, width: int, names: tuple[str, str], activation: Activation = Activation.GELU
) -> Value:
    """Returns groups of neighbouring rows as rows of the language model. The rows of a group are joined, and go through
    two products with an activation between them.

    names: the names of the two products, which have biases.
    """
    return two_products(t, join_rows(x, t.logit_rows, group), width, names, activation)


def two_products(
    t: Tracer,
    x: Value,
    width: int,
    names: tuple[str, str],
    activation: Activation,
    inner: int = 0,
    *,
    bias: bool = True,
) -> Value:
    """Applies a product, an activation and a second product. inner: the width of the first product's output; 0 for the
    width of x."""
    inner = inner or x.width
    middle = activate(linear(x, t.matrix("connector", {names[0]: inner}, x.width, bias=bias)), activation)
    return linear(middle, t.matrix("connector", {names[1]: width}, inner, bias=bias))
