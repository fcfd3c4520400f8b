"""What towers for images share: patches times a matrix, learned places, layers that see the whole tile."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.attend import Heads
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import PagedKV, Tensor, Value
from twostroke.ops.rows.add import add

COLORS = 3


@dataclass(frozen=True, slots=True)
class Patches:
    """The product that reads a patch, and the table of places that is added. Names are of tensors, without ".weight".

    side: the side of a patch in pixels. places: rows of the table.
    """

    side: int
    width: int
    places: int
    product: str
    table: str

    def __call__(self, t: Tracer) -> Value:
        """The rows that the first layer takes; the step's token ids are the places of the patches."""
        columns = COLORS * self.side**2
        name = t.name(self.product)
        kernel = Tensor(f"{name}.weight", (self.width, COLORS, self.side, self.side))
        bias = Tensor(f"{name}.bias", (self.width,))
        x = linear(t.given(columns), t.weight("pixels", self.width, columns, (kernel,), (bias,)))
        return add(x, embed(t.matrix("positions", {self.table: self.places}, self.width), t.token_ids, t))


@dataclass(frozen=True, slots=True)
class Tower:
    """Layers with a norm before each block. norms: the names of a layer's two."""

    layers: str
    num_layers: int
    heads: Heads
    feed: Feed
    norm: Norm
    norms: tuple[str, str] = ("layer_norm1", "layer_norm2")

    def __call__(self, t: Tracer, x: Value) -> Value:
        """The rows after the last layer. All layers keep K and V in one cache, because a tile is one step."""
        shape = self.heads
        cache = t.cache(PagedKV(shape.num_kv_heads, shape.head_dim, ahead=shape.ahead))
        for index in range(self.num_layers):
            with t.layer(f"{self.layers}{index}."):
                h = self.norm(t, self.norms[0], x)
                names = {shape.names.q: shape.query, shape.names.k: shape.kv, shape.names.v: shape.kv}
                joined = linear(h, t.matrix("qkv", names, shape.hidden_size, bias=shape.qkv_bias))
                q, k, v = joined.split(shape.query, shape.kv, shape.kv)
                kv_write(cache, k.heads(shape.num_kv_heads), v.heads(shape.num_kv_heads), t.slots)
                seen = attention(q.heads(shape.num_heads), cache, shape.head_dim**-0.5)
                out = {shape.names.o: shape.hidden_size}
                x = add(x, linear(seen.flat(), t.matrix("o", out, shape.query, bias=shape.output_bias)))
                x = add(x, self.feed(t, self.norm(t, self.norms[1], x)))
        return x
