"""xielu: an activation with four numbers of the checkpoint, in place (Huang and Schlag 2024; Apertus).

    x (T, F) float32 = x > 0:  p x^2 + b x
                       else:   n (exp(min(x, e)) - 1 - x) + b x
    numbers (4,) = [alpha_p, alpha_n, b, e]; p = softplus(alpha_p), n = b + softplus(alpha_n); e below 0.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, of, times
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Vector
from twostroke.ops.rows.activation import FLOPS


def reference(x: F32Array, numbers: F32Array) -> None:
    """See the module."""
    rise, fall = np.logaddexp(0.0, numbers[:2].astype(np.float64))
    line, least = (float(number) for number in numbers[2:])
    wide = x.astype(np.float64)
    above = rise * wide * wide + line * wide
    below = (line + fall) * (np.expm1(np.minimum(wide, least)) - wide) + line * wide
    x[...] = np.where(wide > 0, above, below)


@op
class Xielu(Op):
    """The activation of each element, in place."""

    SHAPES = {"out": "T F", "numbers": "C"}
    CASES = (grid(5e-6, T=(0, 1, 5), F=(1, 15, 33, 200), C=4, out=times(3), numbers=of(0.3, -0.7, 0.5, -1e-6)),)
    BY_HEADS = True

    out: Value
    numbers: Vector

    def cost(self, formats: StoredFormats) -> OpCost:
        """The function for each element; a read and a write."""
        width = self.out.width
        return OpCost(per_row=Work(FLOPS * width, activation_bytes=8 * width))


def xielu(x: Value, numbers: Vector) -> Value:
    """The activation, over x. Raises ValueError for other than four numbers."""
    if numbers.length != 4:
        raise ValueError(f"{numbers.length} numbers, there must be four")
    out = x.written()
    x.trace.record(Xielu(out, numbers))
    return out
