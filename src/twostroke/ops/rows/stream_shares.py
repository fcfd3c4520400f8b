"""stream_shares: how a block reads the residual's streams and adds to them (manifold-constrained hyper-connections;
Xie et al. 2026).

    x (T, W) float32 = [a (N) | b (N) | c (N * N)], W = 2 N + N * N; or [a] alone, W = N. base (W,), factor (3,), or
    (1,) for [a] alone. First each part becomes part * its factor + its base. Then
    out[:, : N]       the weight of each stream in the block's input: sigmoid(a) + eps
    out[:, N : 2 N]   the weight of the block's output in each stream: 2 sigmoid(b)
    out[:, 2 N :]     at [2 N + k * N + j] the weight of old stream j in new stream k: S[j, k]. S begins as
                      softmax(c[j]) + eps row by row, and its columns are divided by (their sum + eps). Then the rows
                      and after them the columns are divided in the same way, `rounds` - 1 times (Sinkhorn and Knopp
                      1967)
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, times
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Vector

MOST_STREAMS = 8


def reference(
    out: F32Array, x: F32Array, base: F32Array, factor: F32Array, streams: int, rounds: int, eps: float
) -> None:
    n = streams
    wide = x.astype(np.float64) * np.repeat(factor, [n, n, n * n][: len(factor)]) + base
    with np.errstate(over="ignore"):
        shares = 1 / (1 + np.exp(-wide[:, : 2 * n]))
    out[:, :n] = shares[:, :n] + eps
    if x.shape[1] == n:
        return
    out[:, n : 2 * n] = 2 * shares[:, n:]
    square = wide[:, 2 * n :].reshape(-1, n, n)
    square = np.exp(square - square.max(axis=2, keepdims=True))
    square = square / square.sum(axis=2, keepdims=True) + eps
    square = square / (square.sum(axis=1, keepdims=True) + eps)
    for _ in range(rounds - 1):
        square = square / (square.sum(axis=2, keepdims=True) + eps)
        square = square / (square.sum(axis=1, keepdims=True) + eps)
    out[:, 2 * n :] = square.swapaxes(1, 2).reshape(-1, n * n)


@op
class StreamShares(Op):
    """For hyper-connections: the weights with which a block reads the residual's streams, adds its output to them, and
    mixes them."""

    SHAPES = {"out": "T W", "x": "T W", "base": "W", "factor": "*"}
    CASES = (
        *(
            grid(3e-6, T=7, streams=n, W=n * (n + 2), x=times(3), factor="3", rounds=(1, 20), eps=1e-6)
            for n in (2, 4, 5, 8)
        ),
        grid(3e-6, T=7, streams=4, W=4, x=times(3), factor="1", rounds=1, eps=1e-6),
    )

    out: Value
    x: Value
    base: Vector
    factor: Vector
    streams: int
    rounds: int
    eps: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 8 FLOPs for each element of a row of `out`, and 4 more (two divisions, two additions) for each
        Sinkhorn round."""
        width = self.out.width
        return OpCost(per_row=Work((8 + 4 * self.rounds) * width, activation_bytes=8 * width))


def stream_shares(x: Value, base: Vector, factor: Vector, streams: int, rounds: int, eps: float) -> Value:
    """Records the call that makes, from logits x (T, 2 N + N * N), a block's weights for the N = `streams` streams of
    the residual. The weights are for reading the streams, for adding the block's output to them, and for mixing them.
    From x (T, N) the call makes the weights for reading alone. Raises ValueError for other widths."""
    x = x.flat()
    parts = {streams: 1, (2 + streams) * streams: 3}
    if not 2 <= streams <= MOST_STREAMS or rounds < 1 or parts.get(x.width) != factor.length:
        raise ValueError(f"{x.width} numbers with {factor.length} factors are not shares of {streams} streams")
    out = x.fresh()
    x.trace.record(StreamShares(out, x, base, factor, streams, rounds, eps))
    return out
