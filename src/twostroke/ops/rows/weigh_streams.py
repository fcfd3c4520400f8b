"""weigh_streams: weighted sums of the streams of a row (hyper-connections; Zhu et al. 2024, Xie et al. 2026).

    out (T, N, D), x (T, M, D), weights (T, N * M) float32: out[n] = sum over m, in order, of weights[n * M + m] * x[m]
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value


def reference(out: F32Array, x: F32Array, weights: F32Array) -> None:
    out[...] = np.einsum("tnm,tmd->tnd", weights.reshape(len(weights), out.shape[1], x.shape[1]), x)


@op
class WeighStreams(Op):
    """For each row: N weighted sums of the M streams (vectors) of x, each with M of the row's N * M weights."""

    SHAPES = {"out": "T N D", "x": "T M D", "weights": "T *"}
    CASES = (grid(3e-6, T=7, N=(1, 3, 4), M=(1, 4, 5), D=(1, 15, 33), weights="N M"),)

    out: Value
    x: Value
    weights: Value

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 2 FLOPs for each element and stream of x. Each operand is read once, and out is written once."""
        moved = self.out.width + self.x.width + self.weights.width
        return OpCost(per_row=Work(2 * self.out.width * self.x.shape[0], activation_bytes=4 * moved))


def weigh_streams(x: Value, weights: Value) -> Value:
    """Records the sums (T, N, D) of the streams x (T, M, D). Raises ValueError where the weights do not fit."""
    count, dim = x.shape
    if weights.width % count:
        raise ValueError(f"{weights.width} weights do not fit sums of {count} streams")
    out = x.fresh(weights.width // count, dim)
    x.trace.record(WeighStreams(out, x, weights))
    return out
