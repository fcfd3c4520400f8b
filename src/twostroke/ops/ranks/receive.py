"""receive: the value that the stage before hands over.

    out (T, W) float32 = x of the `hand_over` of the stage before.

The reference is that of one process: the value is there already.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value

ELEMENT_BYTES = 4


def reference(out: F32Array) -> None:
    """See the module."""


@op
class Receive(Op):
    """out (T, W): what the stage before hands over."""

    SHAPES = {"out": "T W"}

    out: Value

    def cost(self, formats: StoredFormats) -> OpCost:
        """Written once; what travels between stages is not counted here."""
        return OpCost(per_row=Work(0, activation_bytes=ELEMENT_BYTES * self.out.width))

    def reads(self) -> tuple[Value, ...]:
        """No value, also where `out` was changed in place by a call of the stage before."""
        return ()
