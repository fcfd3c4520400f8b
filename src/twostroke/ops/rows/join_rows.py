"""join_rows: neighbouring rows as one long row.

    out (R, g D) float32: row r is x[g l], x[g l + 1], ..., x[g l + g - 1] next to each other, l = rows[r].
    x (T, D) float32, rows (R,) int32, each in [0, T // g). With g = 1 it is gather_rows.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import below, grid
from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Indices, Value


def reference(out: F32Array, x: F32Array, rows: I32Array) -> None:
    """For each index r in `rows`, joins g neighbouring rows of x, from row g * r on, to one row of `out`. g is the
    width of `out` divided by the width of x. Raises IndexError for rows outside x."""
    group = out.shape[1] // x.shape[1]
    out[...] = x[(np.asarray(rows)[:, None] * group + np.arange(group)).reshape(-1)].reshape(out.shape)


@op
class JoinRows(Op):
    """Concatenates the rows of each group of neighbouring rows to one long row."""

    SHAPES = {"out": "R *", "x": "T D", "rows": "R"}
    CASES = (grid(N=(1, 4), M=(1, 2, 3), T="N M", R=(0, 5), D=(1, 15, 200), out="M D", rows=below("N")),)

    out: Value
    x: Value
    rows: Indices

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts the result, read once and written once."""
        return OpCost(per_row=Work(0, activation_bytes=8 * self.out.width))


def join_rows(x: Value, rows: Indices, group: int) -> Value:
    """Records the call that concatenates each group of `group` neighbouring rows of x. rows: the numbers of the groups
    that are wanted."""
    x = x.flat()
    out = x.trace.rows(rows.count, group * x.width)
    x.trace.record(JoinRows(out, x, rows))
    return out
