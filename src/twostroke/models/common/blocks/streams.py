"""Several streams of the residual, mixed before and after each block (hyper-connections on a manifold; Xie et al.
2026).

A block reads a weighted sum of the streams, and its output is added to each stream with a weight of its own. Before
that, the streams are mixed by a matrix whose rows and columns add up to nearly one. All these weights, which the code
calls shares, are computed from the streams.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.ops.products.linear import linear
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Tensor, Value
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate, add, scale, scale_columns
from twostroke.ops.rows.head_norm import head_norm
from twostroke.ops.rows.mix_streams import mix_streams
from twostroke.ops.rows.multiply import multiply
from twostroke.ops.rows.stream_shares import stream_shares
from twostroke.ops.rows.weigh_streams import weigh_streams


@dataclass(frozen=True, slots=True)
class MixedStreams:
    """Residual streams that are mixed with each other at each block. count: the number of streams, each of `width`
    numbers. rounds: how often rows and columns of the mixing matrix are divided by their sums. eps: the epsilon of the
    weights (shares). norm_eps: the epsilon of the norm of all streams, from which the shares are made."""

    count: int
    width: int
    rounds: int
    eps: float
    norm_eps: float

    def begin(self, t: Tracer, x: Value) -> Value:
        """Returns the residual streams before the first layer, which are all equal to the embedded rows x (T, D)."""
        order = tuple(float(column) for _ in range(self.count) for column in range(self.width))
        return take_columns(x, t.constant("order", order)).heads(self.count)

    def read(self, t: Tracer, name: str, x: Value) -> tuple[Value, Value]:
        """Returns the input of a block (T, D), and the weights (shares) that `write` uses after the block. x: the
        residual streams. name: the beginning of the names of the tensors."""
        shares = self._shares(t, name, x, (2 + self.count) * self.count, 3)
        return weigh_streams(x, shares.columns(0, self.count)).flat(), shares

    def write(self, x: Value, shares: Value, made: Value) -> Value:
        """Returns the residual streams after a block: x is mixed, and the output `made` is added with the weights in
        `shares`."""
        count = self.count
        added = weigh_streams(made.heads(1), shares.columns(count, count))
        return mix_streams(added, x, shares.columns(2 * count, count * count))

    def end(self, t: Tracer, name: str, x: Value) -> Value:
        """Returns a weighted sum (T, D) of the residual streams x, which goes to the last norm. The weights are
        computed from x."""
        return weigh_streams(x, self._shares(t, name, x, self.count, 1)).flat()

    def _product(self, t: Tracer, name: str, x: Value, outputs: int) -> Value:
        whole = self.count * self.width
        normed = Norm(self.norm_eps, NormKind.UNIT)(t, "", x.flat())
        return linear(normed, t.weight("router", outputs, whole, (Tensor(t.name(f"{name}_fn"), (outputs, whole)),)))

    def _shares(self, t: Tracer, name: str, x: Value, outputs: int, factors: int) -> Value:
        base, factor = (
            t.vector(f"{name}_{part}", length, suffix="") for part, length in (("base", outputs), ("scale", factors))
        )
        return stream_shares(self._product(t, name, x, outputs), base, factor, self.count, self.rounds, self.eps)


@dataclass(frozen=True, slots=True)
class KeptStreams(MixedStreams):
    """Residual streams that are not mixed with each other. A block's output is added to each of them with a factor
    between 0 and `most`, which is computed from the streams (Tencent 2026). rounds: has no meaning for these
    streams."""

    most: float = 2.0

    def read(self, t: Tracer, name: str, x: Value) -> tuple[Value, Value]:
        product, count = self._product(t, name, x, 2 * self.count), self.count
        read = self._half(t, name, product.columns(0, count), 0, self.eps)
        written = self._half(t, name, product.columns(count, count), 1, self.eps / self.most)
        return weigh_streams(x, read).flat(), scale(written, self.most)

    def write(self, x: Value, shares: Value, made: Value) -> Value:
        return mix_streams(x, made.heads(1), shares)

    def _half(self, t: Tracer, name: str, logits: Value, place: int, eps: float) -> Value:
        """Returns sigmoid(factor * logit + base) + eps for each logit: the weights with which a block reads the streams
        (place 0), or with which its output is added to them (place 1). The tensors of bases and factors hold the
        numbers for both, one after the other."""
        count, first = self.count, place * self.count
        base = Tensor(t.name(f"{name}_base"), (2 * count,), rows=(first, first + count))
        factor = Tensor(t.name(f"{name}_scale"), (2,), rows=(place, place + 1))
        return stream_shares(logits, t.vector_of((base,), count), t.vector_of((factor,), 1), count, 1, eps)


@dataclass(frozen=True, slots=True)
class GatedStreams:
    """Residual streams (Qwen4-Exp, 2026). A block reads the mean of the normed streams, after each element was
    multiplied by a gate. The gates are computed from all streams by two products. The block's output is added to each
    stream with a weight (share) of its own. rank: the rank of the two products. eps: the epsilon of the norm of each
    stream, whose weights are stored as w - 1."""

    count: int
    width: int
    rank: int
    eps: float

    def begin(self, t: Tracer, x: Value) -> Value:
        """Returns the residual streams before the first layer, which are all equal to the embedded rows x (T, D)."""
        order = tuple(float(column) for _ in range(self.count) for column in range(self.width))
        return take_columns(x, t.constant("order", order)).heads(self.count)

    def read(self, t: Tracer, name: str, x: Value) -> tuple[Value, Value]:
        """Returns the input of a block (T, D), and the weights (shares) (T, N) with which the block's output is added
        to the N streams. x: the streams. name: the beginning of the names of the tensors."""
        normed = self._normed(t, name, x)
        outputs = {f"{name}.block_inject_weight": self.count}
        logits = linear(normed, t.matrix("router", outputs, self.count * self.width))
        shares = scale(activate(scale(logits, 1 / self.count), Activation.SIGMOID), 2.0)
        return self._mean(t, name, normed), shares

    def write(self, x: Value, shares: Value, made: Value) -> Value:
        """Returns the residual streams after a block. x: the streams before it. made: the block's output, which is
        added to each stream with the stream's weight in `shares`."""
        return mix_streams(x, made.heads(1), shares)

    def end(self, t: Tracer, name: str, x: Value) -> Value:
        """Returns the gated mean (T, D) of the streams after the last layer."""
        return self._mean(t, name, self._normed(t, name, x))

    def _normed(self, t: Tracer, name: str, x: Value) -> Value:
        whole = self.count * self.width
        copied = take_columns(x, t.constant("copy", tuple(map(float, range(whole))))).heads(self.count)
        unit = head_norm(copied, t.constant("ones", (1.0,) * self.width), self.eps)
        return scale_columns(unit.flat(), t.vector(f"{name}.hc_norm", whole, plus=1.0))

    def _mean(self, t: Tracer, name: str, normed: Value) -> Value:
        whole = self.count * self.width
        low = linear(normed, t.matrix("norm_down", {f"{name}.input_mix_weight_down": self.rank}, whole))
        low = activate(scale(low, 1 / self.count), Activation.SILU)
        gates = linear(low, t.matrix("norm_up", {f"{name}.input_mix_weight_up": whole}, self.rank))
        first, *others = multiply(normed, gates, Activation.SIGMOID).split(*(self.width,) * self.count)
        for other in others:
            first = add(first, other)
        return scale(first, 1 / self.count)
