"""replace_rows: rows that are given from outside, in place of computed ones.

    out (T, D) float32 = given[t] where marks[t] is not 0, else x[t]. marks (T,) int32.

Rows of `given` without a mark are never read, so that they may hold anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.program.op import Op, OpCost, Shapes, StoredFormats
from twostroke.ops.program.values import Indices, Value


def reference(out: F32Array, x: F32Array, given: F32Array, marks: I32Array) -> None:
    """See the module."""
    out[...] = np.where(np.asarray(marks)[:, None] != 0, given, x)


@dataclass(frozen=True, eq=False, slots=True)
class ReplaceRows(Op):
    """Each row, or the given one where it is marked."""

    NAME: ClassVar[str] = "replace_rows"
    SHAPES: ClassVar[Shapes] = {"out": "T D", "x": "T D", "given": "T D", "marks": "T"}
    reference = staticmethod(reference)

    out: Value
    x: Value
    given: Value
    marks: Indices

    def cost(self, formats: StoredFormats) -> OpCost:
        """One row read, one written."""
        return OpCost(per_row=Work(0, activation_bytes=8 * self.out.width))
