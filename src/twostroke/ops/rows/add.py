"""add: a value added to another, the residual stream.

    out (T, D) float32 += x (T, D) float32.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value


def reference(out: F32Array, x: F32Array) -> None:
    """See the module."""
    out += x


@op
class Add(Op):
    """out += x."""

    SHAPES = {"out": "T D", "x": "T D"}
    CASES = (grid(T=(0, 1, 19), D=(1, 15, 16, 33, 200)),)
    BY_HEADS = True

    out: Value
    x: Value

    def cost(self, formats: StoredFormats) -> OpCost:
        """One FLOP an element; two reads and a write."""
        return OpCost(per_row=Work(self.out.width, activation_bytes=12 * self.out.width))


def add(residual: Value, x: Value) -> Value:
    """residual + x, over residual."""
    out = residual.written()
    residual.trace.record(Add(out, x.flat()))
    return out
