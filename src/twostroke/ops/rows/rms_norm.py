"""rms_norm: root mean square layer norm (Zhang and Sennrich 2019).

    out (T, D) = x / sqrt(mean(x^2) + eps) * weight, x (T, D) float32, weight (D,) float32.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Vector


def reference(out: F32Array, x: F32Array, weight: F32Array, eps: float) -> None:
    mean_square = np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True)
    out[...] = (x / np.sqrt(mean_square + eps) * weight).astype(np.float32)


@op
class RmsNorm(Op):
    """The norm of each row."""

    SHAPES = {"out": "T D", "x": "T D", "weight": "D"}
    CASES = (grid(3e-6, T=(0, 1, 7, 33), D=(1, 15, 16, 17, 64, 200), eps=1e-5),)

    out: Value
    x: Value
    weight: Vector
    eps: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 4 FLOPs for each element. Each element is read once and written once."""
        width = self.x.width
        return OpCost(Work(0, weight_bytes=4 * width), Work(4 * width, activation_bytes=8 * width))


def rms_norm(x: Value, weight: Vector, eps: float, *, in_place: bool = False) -> Value:
    """Records the norm of each row of x. in_place: whether the result is written over x itself, which must not be read
    afterwards."""
    out = x.written() if in_place else x.fresh()
    x.trace.record(RmsNorm(out, x, weight, eps))
    return out
