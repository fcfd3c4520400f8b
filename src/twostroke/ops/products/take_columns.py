"""take_columns: columns of a value in another order; any of them may be taken several times, or never.

    out (T, D) float32 = x[:, order], x (T, E) float32, order (D,) whole numbers in [0, E) as float32.

It is used for matrices that are kept with their columns in another order than the checkpoint's (act-order of GPTQ), for
rotated elements of heads, and for copies.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, permutation
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Vector

MOST_COLUMNS = 1 << 24
"""The most columns. All whole numbers up to this one are exact in float32."""


def reference(out: F32Array, x: F32Array, order: F32Array) -> None:
    """Writes the columns of x that `order` names, in that order. Raises IndexError for a column outside x."""
    out[...] = x[:, order.astype(np.int64)]


@op
class TakeColumns(Op):
    """Columns of x, in a given order."""

    SHAPES = {"out": "T D", "x": "T E", "order": "D"}
    CASES = (grid(T=(0, 1, 5), D=(1, 15, 200), E="D", order=permutation),)

    out: Value
    x: Value
    order: Vector

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts each number of the result, read once and written once."""
        return OpCost(per_row=Work(0, activation_bytes=8 * self.out.width))


def take_columns(x: Value, order: Vector) -> Value:
    """Records the call and returns the columns of x that `order` names. It is a copy of x where `order` has all columns
    in their own order."""
    x = x.flat()
    out = x.fresh(order.length)
    x.trace.record(TakeColumns(out, x, order))
    return out
