"""Latent attention: the cache holds one small vector a position for all heads (MLA; DeepSeek-AI 2024).

The checkpoint's kv_b makes a key and a value of each head from a latent. This module splits kv_b into matrices of
single heads. The matrices of the keys multiply the queries before the attention, and the matrices of the values
multiply its output. So attention reads exactly the vectors that are cached, and rows of a prompt are computed in the
same way as rows of an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.norm import Norm
from twostroke.ops.attention.latent_attention import latent_attention
from twostroke.ops.attention.latent_write import latent_write
from twostroke.ops.attention.rope import rope
from twostroke.ops.products.head_linear import head_linear
from twostroke.ops.products.linear import linear
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Cache, HeadRows, LatentKV, Rope, Tensor, Value, Weight, join
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import scale
from twostroke.ops.rows.multiply import multiply
from twostroke.types.spec.rope import RopeKind, RopeSpec

LATENT_NORM = Norm(1e-6)
"""The norm of latents. Most families use this eps, whatever eps their configs give for the other norms."""
STAND_IN = 2
"""How many zeros are cached as the part of the key that all heads share, in models whose keys have no such part. Pages
of latents always have room for it."""


@dataclass(frozen=True, slots=True)
class LatentNames:
    """The names of a block's tensors, after the name of the block. q: the product that makes queries from the residual.
    q_down, q_norm, q_up: the product that makes the queries' latent, its norm, and the product that makes queries from
    this latent. down, norm, up: the same for the latent of keys and values. out: the last product."""

    q: str = "q_proj"
    q_down: str = "q_a_proj"
    q_norm: str = "q_a_layernorm"
    q_up: str = "q_b_proj"
    down: str = "kv_a_proj_with_mqa"
    norm: str = "kv_a_layernorm"
    up: str = "kv_b_proj"
    out: str = "o_proj"


@dataclass(frozen=True, slots=True)
class LatentHeads:
    """The settings of a latent attention block. query_rank: the size of the latent that queries are made of; 0 where
    they are made of the residual. rank: the size of the latent that keys and values are made of. plain, turned: how
    many elements of a head of q and k have no rotation and how many have one. All heads share the `turned` elements of
    the key; there may be none. value_dim: the size of a head of V. turn: the rotation; None where the `turned` elements
    are not rotated either. interleaved: the checkpoint's rotary pairs lie side by side. bias: the products that read
    and write the residual have a bias, except q without a latent. query_growth: how much queries grow with the
    logarithm of their position, see RopeSpec. latent_scale: the factor of the normed latent. gate: the name of a
    product that makes one number for each head; the head's output is multiplied by the number's sigmoid. Empty for
    none. name: the beginning of the names of the block's tensors; names: the rest of these names. norm: the norm of
    latents. window: the number of positions that a row sees, 0 for all. turned_norm: the name of the norm of the rotary
    part of keys, before the rotation; empty for none. rates: the full name of the tensor of the rotation's frequencies,
    see Rope; empty where they are computed."""

    hidden_size: int
    num_heads: int
    query_rank: int
    rank: int
    plain: int
    turned: int
    value_dim: int
    scale: float
    turn: RopeSpec | None
    interleaved: bool
    bias: bool = False
    query_growth: float = 0.0
    latent_scale: float = 1.0
    gate: str = ""
    name: str = "self_attn"
    names: LatentNames = LatentNames()
    norm: Norm = LATENT_NORM
    window: int = 0
    turned_norm: str = ""
    rates: str = ""

    @property
    def pairs(self) -> int:
        """The number of rotary pairs of a head if the elements of a pair are neighbours in the checkpoint, else 0."""
        return self.turned // 2 if self.interleaved else 0


def attend_latents(t: Tracer, shape: LatentHeads, h: Value) -> Value:
    """Returns the output of a latent attention block for the normed rows h, before it is added to the residual."""
    cache = keep_latents(t, shape, h)
    asked, turned = queries(t, shape, query_latent(t, shape, h) if shape.query_rank else h)
    seen = latent_attention(asked, turned, cache, shape.scale)
    return output(t, shape, seen, head_gate(t, shape, h))


def head_gate(t: Tracer, shape: LatentHeads, h: Value) -> Value | None:
    """Returns one number for each head, see LatentHeads.gate; None where the block has no gate."""
    if not shape.gate:
        return None
    outputs = {f"{shape.name}.{shape.gate}": shape.num_heads}
    return linear(h, t.matrix("gate", outputs, shape.hidden_size))


def keep_latents(t: Tracer, shape: LatentHeads, h: Value) -> Cache:
    """Writes the latents of the rows h, and their keys' rotary part, into the layer's cache and returns the cache."""
    behind = shape.turned or STAND_IN
    made = linear(h, _down(t, shape))
    if not shape.turned:
        columns = (*range(shape.rank), *range(STAND_IN))
        made = take_columns(made, t.constant("order", tuple(float(column) for column in columns)))
    latent, turned = made.split(shape.rank, behind)
    latent = scale(shape.norm(t, f"{shape.name}.{shape.names.norm}", latent, in_place=True), shape.latent_scale)
    if not shape.turned:
        turned = scale(turned, 0.0)
    if shape.turned_norm:
        order = HeadRows(1, shape.turned, shape.turned, pairs=shape.pairs)
        turned = shape.norm.of_heads(t, f"{shape.name}.{shape.turned_norm}", turned.heads(1), order).flat()
    if shape.turn:
        turned = rope(turned.heads(1), rotation(t, shape, shape.turn), t.positions).flat()
    cache = t.cache(LatentKV(1, shape.rank + behind, shape.window, shape.rank))
    latent_write(cache, join(latent, turned), t.slots)
    return cache


def query_latent(t: Tracer, shape: LatentHeads, h: Value) -> Value:
    """Returns the normed latent from which queries are made."""
    outputs = {f"{shape.name}.{shape.names.q_down}": shape.query_rank}
    made = linear(h, t.matrix("q_latent", outputs, shape.hidden_size, bias=shape.bias))
    return shape.norm(t, f"{shape.name}.{shape.names.q_norm}", made, in_place=True)


def rotation(t: Tracer, shape: LatentHeads, turn: RopeSpec) -> Rope:
    """Returns the rotation with its frequencies: those of the tensor `shape.rates`, or the usual ones of `turn` where
    the block has no such tensor."""
    if not shape.rates:
        return Rope(turn)
    pairs = turn.rotary_dim // 2
    return Rope(turn, t.vector_of((Tensor(shape.rates, (pairs,)),), pairs))


def queries(t: Tracer, shape: LatentHeads, source: Value, factor: Value | None = None) -> tuple[Value, Value]:
    """Makes the queries of each head from the rows `source` and rotates them. Returns two parts: one is multiplied by
    the cached latents (T, H, rank), the other by the rotary part of keys (T, H, turned). factor: (T, H), multiplies the
    queries of each head; None for no factor."""
    heads, step = shape.num_heads, shape.plain + shape.turned
    if not shape.turned:
        plain = linear(source, _asking(t, shape, source.width, (HeadRows(heads, step, step),)))
        plain = plain if factor is None else multiply(plain, factor)
        anything = plain.columns(0, STAND_IN * heads).heads(heads)  # attention multiplies these numbers by zeros
        return head_linear(plain.heads(heads), _keys_up(t, shape)), anything
    parts = (
        HeadRows(heads, step, shape.plain),
        HeadRows(heads, step, shape.turned, shape.plain, shape.pairs),
    )
    made = linear(source, _asking(t, shape, source.width, parts))
    both = made.split(heads * shape.plain, heads * shape.turned)
    return turned_queries(t, shape, *(both if factor is None else (multiply(part, factor) for part in both)))


def turned_queries(t: Tracer, shape: LatentHeads, plain: Value, turned: Value) -> tuple[Value, Value]:
    """Takes the two parts of all heads' queries, without (plain) and with (turned) a rotation. Returns the plain part
    multiplied by the matrices that make keys from latents (T, H, rank), and the rotated part (T, H, turned)."""
    plain, turned = plain.heads(shape.num_heads), turned.heads(shape.num_heads)
    if not shape.turn:
        return head_linear(plain, _keys_up(t, shape)), turned
    turn = replace(shape.turn, growth=shape.query_growth)
    if shape.query_growth:
        still = replace(turn, kind=RopeKind.STILL, rotary_dim=shape.plain, attention_factor=1.0)
        plain = rope(plain, Rope(still), t.positions)
    return head_linear(plain, _keys_up(t, shape)), rope(turned, rotation(t, shape, turn), t.positions)


def output(t: Tracer, shape: LatentHeads, seen: Value, gate: Value | None = None) -> Value:
    """Returns the block's output from what the heads have attended to, `seen` (T, H, rank). gate: a number for each
    head, whose sigmoid multiplies the head's result; None for no gate."""
    made = head_linear(seen, _values_up(t, shape)).flat()
    made = made if gate is None else multiply(made, gate, Activation.SIGMOID)
    return linear(
        made, t.matrix("o", {f"{shape.name}.{shape.names.out}": shape.hidden_size}, made.width, bias=shape.bias)
    )


def _asking(t: Tracer, shape: LatentHeads, columns: int, orders: tuple[HeadRows, ...]) -> Weight:
    name = f"{shape.name}.{shape.names.q_up if shape.query_rank else shape.names.q}"
    return t.selected("q", name, shape.num_heads * (shape.plain + shape.turned), columns, orders)


def _down(t: Tracer, shape: LatentHeads) -> Weight:
    """Returns the matrix that makes the latent and the rotary part of keys."""
    rows = shape.rank + shape.turned
    orders = [HeadRows(1, rows, shape.rank)]
    if shape.turned:
        orders.append(HeadRows(1, rows, shape.turned, shape.rank, shape.pairs))
    name = f"{shape.name}.{shape.names.down}"
    return t.selected("kv_latent", name, rows, shape.hidden_size, orders, bias=shape.bias)


def _keys_up(t: Tracer, shape: LatentHeads) -> Weight:
    """Returns for each head the transposed matrix (rank, plain) that makes keys from latents."""
    firsts = _firsts(shape)
    parts = tuple(_up(t, shape, transposed=True, columns=(first, first + shape.plain)) for first in firsts)
    return t.weight("keys_up", shape.rank, shape.plain, parts, experts=shape.num_heads)


def _values_up(t: Tracer, shape: LatentHeads) -> Weight:
    """Returns for each head the matrix (value_dim, rank) that makes values from latents."""
    firsts = [first + shape.plain for first in _firsts(shape)]
    parts = tuple(_up(t, shape, rows=(first, first + shape.value_dim)) for first in firsts)
    return t.weight("values_up", shape.value_dim, shape.rank, parts, experts=shape.num_heads)


def _firsts(shape: LatentHeads) -> range:
    """Returns the first row of each head in kv_b."""
    step = shape.plain + shape.value_dim
    return range(0, shape.num_heads * step, step)


def _up(
    t: Tracer,
    shape: LatentHeads,
    *,
    transposed: bool = False,
    rows: tuple[int, int] | None = None,
    columns: tuple[int, int] | None = None,
) -> Tensor:
    whole = (shape.num_heads * (shape.plain + shape.value_dim), shape.rank)
    return Tensor(t.name(f"{shape.name}.{shape.names.up}.weight"), whole, transposed, rows, columns=columns)
