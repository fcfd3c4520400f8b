"""gaussian_cut: the amount by which each number is above a cut, else 0, in place (Gemma 3n's sparsity).

    x (T, F) float32 = max(x - mean - factor * deviation, 0), mean and deviation of the row, the deviation over F.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, times
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value


def reference(x: F32Array, factor: float) -> None:
    wide = x.astype(np.float64)
    cut = wide.mean(axis=1, keepdims=True) + factor * wide.std(axis=1, keepdims=True)
    x[...] = np.maximum(wide - cut, 0.0)


@op
class GaussianCut(Op):
    """Replaces each number x of a row by max(x - cut, 0), in place. The cut is the row's mean + factor * its standard
    deviation."""

    SHAPES = {"out": "T F"}
    CASES = (grid(5e-6, T=(0, 1, 5), F=(1, 15, 33, 200), out=times(3), factor=(0.4, 1.2)),)

    out: Value
    factor: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts a sum, a sum of squares and a comparison for each element, with a read and a write."""
        width = self.out.width
        return OpCost(per_row=Work(5 * width, activation_bytes=8 * width))


def gaussian_cut(x: Value, factor: float) -> Value:
    """Records max(x - mean - factor * deviation, 0), with each row's mean and standard deviation, which is written over
    x."""
    out = x.written()
    x.trace.record(GaussianCut(out, factor))
    return out
