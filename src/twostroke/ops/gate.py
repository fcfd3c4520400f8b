"""gate: the gate of a gated feed-forward block (Shazeer 2020).

    out (T, F) float32 = act(gate) * up, [gate | up] = x (T, 2 F) float32; act by its number in ops/activation.py.

Knows: the contract, the reference, the cost. Must not know: implementations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.activation import FLOPS, Activation, activated
from twostroke.ops.operands import F32Array
from twostroke.program.op import Op, OpCost, Shapes, StoredFormats
from twostroke.program.values import Value

__all__ = ["Activation", "GateProduct", "gate", "reference"]


def reference(out: F32Array, x: F32Array, activation: int) -> None:
    """See the module."""
    half = x.shape[1] // 2
    with np.errstate(over="ignore"):
        out[...] = (activated(x[:, :half], activation) * x[:, half:]).astype(np.float32)


@dataclass(frozen=True, eq=False, slots=True)
class GateProduct(Op):
    """act(gate) * up."""

    NAME: ClassVar[str] = "gate"
    SHAPES: ClassVar[Shapes] = {"out": "T F", "x": "T 2F"}
    BY_HEADS: ClassVar[bool] = True
    reference = staticmethod(reference)

    out: Value
    x: Value
    activation: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """The function and a product for each output element; two reads and a write."""
        width = self.out.width
        return OpCost(per_row=Work(FLOPS * width, activation_bytes=12 * width))


def gate(x: Value, activation: Activation) -> Value:
    """act(gate) * up of rows [gate | up]."""
    out = x.fresh(x.width // 2)
    x.trace.record(GateProduct(out, x, int(activation)))
    return out
