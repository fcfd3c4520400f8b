"""round_rows: each row rounded to whole numbers of 8 bits and back (the activations of BitNet b1.58; Ma et al. 2024).

    out (T, D) float32 = rint(x * s) / s, held between -128 / s and 127 / s; s = 127 / max(largest magnitude, 1e-5) of
    the row; x (T, D) float32. Halves go to the even number. A row with a NaN becomes NaN.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, times, with_nan
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value

LEAST = np.float32(1e-5)


def reference(out: F32Array, x: F32Array) -> None:
    steps = np.float32(127) / np.maximum(np.abs(x).max(axis=1, keepdims=True), LEAST)
    out[...] = np.clip(np.rint(x * steps), -128, 127) / steps


@op
class RoundRows(Op):
    """Each row rounded to whole numbers of 8 bits times one scale."""

    SHAPES = {"out": "T D", "x": "T D"}
    CASES = (grid(T=(0, 1, 7), D=(1, 15, 40, 300), x=(times(3), with_nan)),)

    out: Value
    x: Value

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts a comparison, a product, a rounding and a quotient for each element. Each element is read twice and
        written once."""
        width = self.out.width
        return OpCost(per_row=Work(4 * width, activation_bytes=12 * width))
