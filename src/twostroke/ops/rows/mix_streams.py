"""mix_streams: each stream of a row plus a weighted sum of other streams of that row (AltUp; Baykal et al. 2023).

    out, base (T, N, D), x (T, M, D), weights (T, N * M) float32:
    out[n] = base[n] + sum over m, in order, of (weights[n * M + m] + shift) * x[m]
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value


def reference(out: F32Array, base: F32Array, x: F32Array, weights: F32Array, shift: float) -> None:
    shares = (weights + np.float32(shift)).reshape(len(weights), base.shape[1], x.shape[1])
    out[...] = base + np.einsum("tnm,tmd->tnd", shares, x)


@op
class MixStreams(Op):
    """For each row: each of the N streams (vectors) of `base`, plus a weighted sum of the M streams of x."""

    SHAPES = {"out": "T N D", "base": "T N D", "x": "T M D", "weights": "T *"}
    CASES = (grid(3e-6, T=7, N=(1, 2, 4), M=(1, 4, 5), D=(1, 15, 33), weights="N M", shift=0.5),)

    out: Value
    base: Value
    x: Value
    weights: Value
    shift: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 2 FLOPs for each element and stream of x. Each operand is read once, and out is written once."""
        width, streams = self.out.width, self.x.shape[0]
        moved = 2 * width + self.x.width + self.weights.width
        return OpCost(per_row=Work(2 * width * streams, activation_bytes=4 * moved))


def mix_streams(base: Value, x: Value, weights: Value, shift: float = 0.0) -> Value:
    """Records base (T, N, D) plus the weighted sums of x (T, M, D). Raises ValueError where the weights do not fit."""
    if weights.width != base.shape[0] * x.shape[0]:
        raise ValueError(f"{weights.width} weights do not fit {base.shape[0]} sums of {x.shape[0]} streams")
    out = base.fresh()
    base.trace.record(MixStreams(out, base, x, weights, shift))
    return out
