"""gather_rows: the rows that need logits.

    out (R, D) float32 = x[rows], x (T, D) float32, rows (R,) int32, each in [0, T).
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.cases import below, grid
from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Indices, Value


def reference(out: F32Array, x: F32Array, rows: I32Array) -> None:
    """Copies the rows of x that `rows` names to `out`, in that order. Raises IndexError for a row outside x."""
    out[...] = x[rows]


@op
class GatherRows(Op):
    """Some rows of x, in a given order."""

    SHAPES = {"out": "R D", "x": "T D", "rows": "R"}
    CASES = (grid(T=(1, 7), R=(0, 5), D=(1, 15, 64, 200), rows=below("T")),)

    out: Value
    x: Value
    rows: Indices

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts the result, read once and written once."""
        return OpCost(per_row=Work(0, activation_bytes=8 * self.out.width))


def gather_rows(x: Value, rows: Indices) -> Value:
    """Records the call and returns the rows of x whose numbers are in `rows`."""
    out = x.trace.rows(rows.count, *x.shape)
    x.trace.record(GatherRows(out, x, rows))
    return out
