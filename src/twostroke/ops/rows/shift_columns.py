"""shift_columns: a number of each column is subtracted, in place.

    x (T, D) float32 -= weight (D,) float32.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Vector


def reference(x: F32Array, weight: F32Array) -> None:
    """See the module."""
    x -= weight


@op
class ShiftColumns(Op):
    """x - weight, over x."""

    SHAPES = {"out": "T D", "weight": "D"}
    CASES = (grid(T=(0, 1, 19), D=(1, 15, 200)),)

    out: Value
    weight: Vector

    def cost(self, formats: StoredFormats) -> OpCost:
        """One FLOP an element; a read and a write."""
        width = self.out.width
        return OpCost(Work(0, weight_bytes=4 * self.weight.length), Work(width, activation_bytes=8 * width))


def shift_columns(x: Value, weight: Vector) -> Value:
    """x minus weight, over x."""
    out = x.written()
    x.trace.record(ShiftColumns(out, weight))
    return out
