"""match_rms: rows scaled to the root mean square of other rows, in place (the streams of Gemma 3n).

    x (T, D) float32 *= sqrt(mean(like^2)) / sqrt(max(mean(x^2), least)), like (T, D) float32.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, times
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value


def reference(x: F32Array, like: F32Array, least: float) -> None:
    own, wanted = (np.mean(each.astype(np.float64) ** 2, axis=1, keepdims=True) for each in (x, like))
    x[...] = x * np.sqrt(wanted / np.maximum(own, least))


@op
class MatchRms(Op):
    """x with the root mean square of `like`, in place."""

    SHAPES = {"out": "T D", "like": "T D"}
    CASES = (grid(5e-6, T=(0, 1, 5), D=(1, 15, 33, 200), out=times(3), least=1e-5),)

    out: Value
    like: Value
    least: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts two sums of squares and a product, with two reads and a write."""
        width = self.out.width
        return OpCost(per_row=Work(5 * width, activation_bytes=12 * width))


def match_rms(x: Value, like: Value, least: float) -> Value:
    """Records the call that scales each row of x, in place, so that the row has the root mean square of the same row of
    `like`. Returns the scaled value. least: the mean square of x that is assumed where it is smaller."""
    out = x.written()
    x.trace.record(MatchRms(out, like, least))
    return out
