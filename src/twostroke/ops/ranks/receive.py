"""receive: the value that the previous stage hands over.

    out (T, W) float32 = x of the `hand_over` of the previous stage.

The reference is for one process: the value is in its place already.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value

ELEMENT_BYTES = 4


def reference(out: F32Array) -> None:
    """Does nothing: in one process, the previous stage has written `out` already."""


@op
class Receive(Op):
    """out (T, W): the value that the previous stage hands over."""

    SHAPES = {"out": "T W"}
    ON_DEVICES = False

    out: Value

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts the value, written once. The bytes between stages are not counted in it."""
        return OpCost(per_row=Work(0, activation_bytes=ELEMENT_BYTES * self.out.width))

    def reads(self) -> tuple[Value, ...]:
        """Returns no value, because the call only writes `out`. Op.reads would return the value before a change in
        place if `out` is such a changed value; that value is in the previous stage."""
        return ()
