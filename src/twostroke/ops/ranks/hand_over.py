"""hand_over: a value goes to the next stage.

    x (T, W) float32, which becomes the result of `receive` in the next stage.

The reference is for one process: the value stays in its place.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value

ELEMENT_BYTES = 4


def reference(x: F32Array) -> None:
    """Does nothing: in one process, the value stays in its place."""


@op
class HandOver(Op):
    """Sends x to the next stage."""

    SHAPES = {"x": "T W"}
    ON_DEVICES = False

    x: Value

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts x, read once. The bytes between stages are not counted in it."""
        return OpCost(per_row=Work(0, activation_bytes=ELEMENT_BYTES * self.x.width))
