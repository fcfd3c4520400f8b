"""scale: a value times a number, in place (embeddings of Gemma, residuals and logits of Granite, logits of Cohere).

    x (T, D) float32 *= factor.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value


def reference(x: F32Array, factor: float) -> None:
    """See the module."""
    x *= np.float32(factor)


@op
class Scale(Op):
    """x * factor, over x."""

    SHAPES = {"out": "T D"}
    CASES = (grid(T=(0, 1, 5), D=(1, 15, 200, 9000), factor=0.3),)

    out: Value
    factor: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """One FLOP an element; a read and a write."""
        return OpCost(per_row=Work(self.out.width, activation_bytes=8 * self.out.width))


def scale(x: Value, factor: float) -> Value:
    """x * factor, over x; x itself where the factor is 1."""
    if factor == 1:
        return x
    out = x.written()
    x.trace.record(Scale(out, factor))
    return out
