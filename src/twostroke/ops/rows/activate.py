"""activate: the activation of a feed-forward block without a gate, in place.

    x (T, F) float32 = act(x); act by its number in activation.py.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, times
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value
from twostroke.ops.rows.activation import FLOPS, Activation, activated


def reference(x: F32Array, activation: int) -> None:
    """See the module."""
    x[...] = activated(x, activation)


@op
class Activate(Op):
    """act(x), over x."""

    SHAPES = {"out": "T F"}
    CASES = (grid(2e-6, T=(0, 5), F=(1, 15, 33), out=times(4), activation=tuple(Activation)),)
    BY_HEADS = True

    out: Value
    activation: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """The function for each element; a read and a write."""
        width = self.out.width
        return OpCost(per_row=Work(FLOPS * width, activation_bytes=8 * width))


def activate(x: Value, activation: Activation) -> Value:
    """act(x), over x."""
    out = x.written()
    x.trace.record(Activate(out, int(activation)))
    return out
