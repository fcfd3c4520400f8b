"""scale_columns: each column times a number of its own, or all times one number of the checkpoint, in place.

    x (T, D) float32 *= weight (D,) or (1,) float32.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Vector


def reference(x: F32Array, weight: F32Array) -> None:
    """See the module."""
    x *= weight


@op
class ScaleColumns(Op):
    """x * weight, over x."""

    SHAPES = {"out": "T D", "weight": "*"}
    CASES = (grid(T=(0, 1, 5), D=(1, 15, 200), weight=("1", "D")),)
    BY_HEADS = True
    COLUMN_VECTOR = "weight"

    out: Value
    weight: Vector

    def cost(self, formats: StoredFormats) -> OpCost:
        """One FLOP an element; a read and a write."""
        width = self.out.width
        return OpCost(Work(0, weight_bytes=4 * self.weight.length), Work(width, activation_bytes=8 * width))


def scale_columns(x: Value, weight: Vector) -> Value:
    """x times weight, over x. Raises ValueError for a weight that has neither one number nor one for each column."""
    if weight.length not in (1, x.width):
        raise ValueError(f"{weight.length} numbers for {x.width} columns")
    out = x.written()
    x.trace.record(ScaleColumns(out, weight))
    return out
