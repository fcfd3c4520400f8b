"""soft_cap: a value held between -cap and cap by a hyperbolic tangent, in place (logits of Gemma 2).

    x (T, D) float32 = cap * tanh(x / cap), cap above 0.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, times
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value


def reference(x: F32Array, cap: float) -> None:
    """See the module."""
    x[...] = np.tanh(x.astype(np.float64) / cap) * cap


@op
class SoftCap(Op):
    """cap * tanh(x / cap), over x."""

    SHAPES = {"out": "T D"}
    CASES = (grid(1e-6, T=(0, 1, 5), D=(1, 15, 200), out=times(20), cap=(0.5, 30.0, 1e6)),)

    out: Value
    cap: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """About 20 FLOPs an element; a read and a write."""
        return OpCost(per_row=Work(20 * self.out.width, activation_bytes=8 * self.out.width))


def soft_cap(x: Value, cap: float) -> Value:
    """cap * tanh(x / cap), over x; x itself where the cap is 0."""
    if cap == 0:
        return x
    out = x.written()
    x.trace.record(SoftCap(out, cap))
    return out
