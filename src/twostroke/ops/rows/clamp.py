"""clamp: each element held between two bounds, in place (the clip_qkv of OLMo, MPT and DBRX).

    x (T, D) float32 = min(max(x, -limit), limit), limit above 0. What is NaN stays NaN.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, wild
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value


def reference(x: F32Array, limit: float) -> None:
    """See the module."""
    np.clip(x, np.float32(-limit), np.float32(limit), out=x)


@op
class Clamp(Op):
    """x between -limit and limit, over x."""

    SHAPES = {"out": "T D"}
    CASES = (grid(T=(0, 1, 6), D=(1, 15, 33, 200), out=wild, limit=0.3),)
    BY_HEADS = True

    out: Value
    limit: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Two comparisons an element; a read and a write."""
        return OpCost(per_row=Work(2 * self.out.width, activation_bytes=8 * self.out.width))


def clamp(x: Value, limit: float) -> Value:
    """x between -limit and limit, over x; x itself where the limit is 0."""
    if limit == 0:
        return x
    out = x.flat().written()
    x.trace.record(Clamp(out, limit))
    return out
