"""DiffLlama: Llama with differential attention, which subtracts a second softmax over the same values from the first
(Ye et al. 2024).

For each pair of KV heads, a page keeps the two keys joined as one key, and the two values joined as one value. A query
has zeros in the place of the other head's key, so its scores depend only on its own head's key. The result of a query
is as wide as both values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from twostroke.models.common.blocks.attend import Heads
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.attention.rope import rope
from twostroke.ops.products.linear import linear
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.values import PagedKV, Rope, Tensor, Vector, VectorForm, join
from twostroke.ops.rows.expressions import add, scale_columns
from twostroke.ops.rows.head_norm import head_norm
from twostroke.types.spec.rope import RopeSpec, rope_from_config


@dataclass(frozen=True, slots=True)
class PairedHeads:
    """How heads stand in the cache. KV heads j and j + half are one head of the cache; it has the query heads of both,
    j's first."""

    heads: Heads
    turn: RopeSpec
    eps: float

    @property
    def pairs(self) -> int:
        """The number of pairs of KV heads; the cache keeps each pair as one KV head."""
        return self.heads.num_kv_heads // 2

    def kv_order(self) -> tuple[int, ...]:
        """Returns the columns of k, or of v, in the order of the cache."""
        return self._columns(self.heads.head_dim, [each for j in range(self.pairs) for each in (j, j + self.pairs)])

    def query_order(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Returns the order of the columns of q, and a factor for each. A key in the cache joins the keys of two KV
        heads, so each query head appears twice. Its factors are 1 where it meets its own KV head's key, and 0 where it
        meets the other one."""
        dim, group = self.heads.head_dim, self.heads.num_heads // self.heads.num_kv_heads
        columns, counts = [], []
        for head in self._query_heads():
            second = head // group >= self.pairs
            columns += 2 * list(range(head * dim, head * dim + dim))
            counts += [float(place == second) for place in (False, True) for _ in range(dim)]
        return tuple(columns), tuple(counts)

    def seen_orders(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns two orders of the columns of the attention's result. The first one takes the results of the first
        softmaxes, the second one those of the second softmaxes, each by query head."""
        heads, place = self.heads.num_heads, {head: at for at, head in enumerate(self._query_heads())}
        first, second = (range(begin, begin + heads // 2) for begin in (0, heads // 2))
        width = 2 * self.heads.head_dim
        return self._columns(width, [place[head] for head in first]), self._columns(width, [place[h] for h in second])

    def _query_heads(self) -> list[int]:
        group = self.heads.num_heads // self.heads.num_kv_heads
        owners = (owner for j in range(self.pairs) for owner in (j, j + self.pairs))
        return [owner * group + index for owner in owners for index in range(group)]

    @staticmethod
    def _columns(width: int, heads: list[int]) -> tuple[int, ...]:
        return tuple(head * width + column for head in heads for column in range(width))

    def __call__(self, t: Tracer, h: Value, start: float) -> Value:
        """Returns the block's output for the normed rows h. start: the initial value of the factor of the second
        softmax."""
        shape, dim = self.heads, self.heads.head_dim
        outputs = {shape.names.q: shape.query, shape.names.k: shape.kv, shape.names.v: shape.kv}
        made = linear(h, t.matrix("qkv", outputs, shape.hidden_size, bias=shape.qkv_bias))
        q, k, v = made.split(*outputs.values())
        both = join(q.heads(shape.num_heads), k.heads(shape.num_kv_heads))
        q, k = rope(both, Rope(self.turn), t.positions).flat().split(shape.query, shape.kv)
        columns, counts = self.query_order()
        q = scale_columns(_taken(t, q, columns), t.constant("counts", counts)).heads(shape.num_heads)
        k, v = (_taken(t, each, self.kv_order()).heads(self.pairs) for each in (k, v))
        cache = t.cache(PagedKV(self.pairs, 2 * dim))
        kv_write(cache, k, v, t.slots)
        seen = attention(q, cache, dim**-0.5).flat()
        first, second = (_taken(t, seen, order) for order in self.seen_orders())
        apart = add(first, scale_columns(second, self._factor(t, start))).heads(shape.num_heads // 2)
        normed = head_norm(apart, t.constant("norm", (1.0 - start,) * (2 * dim)), self.eps).flat()
        return linear(normed, t.matrix("o", {shape.names.o: shape.hidden_size}, shape.query, bias=shape.output_bias))

    def _factor(self, t: Tracer, start: float) -> Vector:
        """Returns the factor of the second softmax, negated."""
        names = (t.name(f"self_attn.lambda_{name}") for name in ("q1", "k1", "q2", "k2"))
        parts = tuple(Tensor(name, (self.heads.head_dim,)) for name in names)
        return t.vector_of(parts, 1, plus=-start, form=VectorForm.DIFFERENCE)


@architecture("DiffLlamaForCausalLM", model_type="diffllama")
def diffllama(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads DiffLlama. lambda_std_dev is ignored: it matters only when training begins."""
    parts = read_parts(fields, defaults("diffllama"))
    fields, norm = parts.fields, parts.norm
    biased = fields.boolean("attention_bias", False)
    heads = Heads(*_counts(parts.heads, fields), qkv_bias=biased, output_bias=biased)
    paired = PairedHeads(heads, rope_from_config(fields, heads.head_dim, parts.facts.max_positions), norm.eps)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        start = 0.8 - 0.6 * math.exp(-0.3 * index)
        x = add(x, paired(t, norm(t, "input_layernorm", x), start))
        return add(x, parts.feed(t, norm(t, "post_attention_layernorm", x)))

    return parts.facts, decoder_program(parts.decoder, layer)


def _counts(heads: Heads, fields: Fields) -> tuple[int, int, int, int]:
    if heads.num_kv_heads % 2:
        raise fields.wrong("num_key_value_heads", "It must be even: half of the heads are of the second softmax.")
    return heads.hidden_size, heads.num_heads, heads.num_kv_heads, heads.head_dim


def _taken(t: Tracer, x: Value, columns: tuple[int, ...]) -> Value:
    """Returns the columns of x in the order `columns`."""
    return take_columns(x, t.constant("order", tuple(map(float, columns))))
