"""Latent attention: the cache holds one small vector a position for all heads (MLA; DeepSeek-AI 2024).

The checkpoint's kv_b makes a key and a value of each head from a latent. Here its rows are matrices of single heads:
those of the keys are put before the attention, on the queries, those of the values behind it. So what is cached is what
is read, and a row of a prompt is computed as a row of an answer is.

Knows: the ops, usual names of tensors.
Must not know: config fields, norms before and after the block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.norm import Norm
from twostroke.ops.head_linear import head_linear
from twostroke.ops.latent_attention import latent_attention
from twostroke.ops.latent_write import latent_write
from twostroke.ops.linear import linear
from twostroke.ops.rope import rope
from twostroke.program.trace import Tracer
from twostroke.program.values import HeadRows, LatentKV, Rope, Tensor, Value, Weight, join
from twostroke.spec.rope import RopeKind, RopeSpec

LATENT_NORM = Norm(1e-6)
"""Of latents: every family takes this eps, whatever its config says of the other norms."""
Q, Q_DOWN, Q_UP = "self_attn.q_proj", "self_attn.q_a_proj", "self_attn.q_b_proj"
KV_DOWN, KV_UP = "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj"


@dataclass(frozen=True, slots=True)
class LatentHeads:
    """query_rank: of the latent that queries are made of; 0 where they are made of the residual. rank: of the latent
    that keys and values are made of. plain, turned: the parts of a head of q and k without and with a rotation.
    value_dim: of a head of V. interleaved: the checkpoint's rotary pairs lie side by side. bias: of the products that
    read and write the residual, but not of q without a latent. query_growth: how much queries grow with the logarithm
    of their position, see RopeSpec.
    """

    hidden_size: int
    num_heads: int
    query_rank: int
    rank: int
    plain: int
    turned: int
    value_dim: int
    scale: float
    turn: RopeSpec
    interleaved: bool
    bias: bool = False
    query_growth: float = 0.0

    @property
    def pairs(self) -> int:
        """Rotary pairs of a head that lie side by side."""
        return self.turned // 2 if self.interleaved else 0


def attend_latents(t: Tracer, shape: LatentHeads, h: Value) -> Value:
    """The block's output for the normed rows h, not yet added."""
    heads, rank = shape.num_heads, shape.rank
    latent, turned_key = linear(h, _down(t, shape)).split(rank, shape.turned)
    latent = LATENT_NORM(t, "self_attn.kv_a_layernorm", latent, in_place=True)
    turned_key = rope(turned_key.heads(1), Rope(shape.turn), t.positions).flat()
    cache = t.cache(LatentKV(1, rank + shape.turned, 0, rank))
    latent_write(cache, join(latent, turned_key), t.slots)
    plain, turned = _queries(t, shape, h).split(heads * shape.plain, heads * shape.turned)
    plain, turn = plain.heads(heads), replace(shape.turn, growth=shape.query_growth)
    if shape.query_growth:
        still = replace(turn, kind=RopeKind.STILL, rotary_dim=shape.plain, attention_factor=1.0)
        plain = rope(plain, Rope(still), t.positions)
    asked = head_linear(plain, _keys_up(t, shape))
    turned = rope(turned.heads(heads), Rope(turn), t.positions)
    seen = head_linear(latent_attention(asked, turned, cache, shape.scale), _values_up(t, shape))
    output = t.matrix("o", {"self_attn.o_proj": shape.hidden_size}, heads * shape.value_dim, bias=shape.bias)
    return linear(seen.flat(), output)


def _queries(t: Tracer, shape: LatentHeads, h: Value) -> Value:
    """The parts without a rotation of all heads, then those with one."""
    name, columns = Q, shape.hidden_size
    if shape.query_rank:
        name, columns = Q_UP, shape.query_rank
        h = linear(h, t.matrix("q_latent", {Q_DOWN: columns}, shape.hidden_size, bias=shape.bias))
        h = LATENT_NORM(t, "self_attn.q_a_layernorm", h, in_place=True)
    step = shape.plain + shape.turned
    plain = HeadRows(shape.num_heads, step, shape.plain)
    turned = HeadRows(shape.num_heads, step, shape.turned, shape.plain, shape.pairs)
    return linear(h, t.selected("q", name, shape.num_heads * step, columns, (plain, turned)))


def _down(t: Tracer, shape: LatentHeads) -> Weight:
    """The matrix of the latent and of the turned key."""
    rows = shape.rank + shape.turned
    orders = HeadRows(1, rows, shape.rank), HeadRows(1, rows, shape.turned, shape.rank, shape.pairs)
    return t.selected("kv_latent", KV_DOWN, rows, shape.hidden_size, orders, bias=shape.bias)


def _keys_up(t: Tracer, shape: LatentHeads) -> Weight:
    """For each head the matrix (rank, plain): what makes keys of latents, turned."""
    firsts = _firsts(shape)
    parts = tuple(_up(t, shape, transposed=True, columns=(first, first + shape.plain)) for first in firsts)
    return t.weight("keys_up", shape.rank, shape.plain, parts, experts=shape.num_heads)


def _values_up(t: Tracer, shape: LatentHeads) -> Weight:
    """For each head the matrix (value_dim, rank)."""
    firsts = [first + shape.plain for first in _firsts(shape)]
    parts = tuple(_up(t, shape, rows=(first, first + shape.value_dim)) for first in firsts)
    return t.weight("values_up", shape.value_dim, shape.rank, parts, experts=shape.num_heads)


def _firsts(shape: LatentHeads) -> range:
    """The first row of each head in kv_b."""
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
    return Tensor(t.name(f"{KV_UP}.weight"), whole, transposed, rows, columns=columns)
