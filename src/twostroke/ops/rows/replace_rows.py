"""replace_rows: rows that are given from outside, in place of computed ones.

    out (T, D) float32 = given[t] where marks[t] is not 0, else x[t]. marks (T,) int32. Where `added` is not 0,
    a marked row is x[t] + given[t].

Rows of `given` without a mark are never read, so that they may hold anything.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import between, grid
from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Indices, Value


def reference(out: F32Array, x: F32Array, given: F32Array, marks: I32Array, added: int = 0) -> None:
    out[...] = np.where(np.asarray(marks)[:, None] != 0, x + given if added else given, x)


@op
class ReplaceRows(Op):
    """Each row of x, replaced by the given row where it is marked."""

    SHAPES = {"out": "T D", "x": "T D", "given": "T D", "marks": "T"}
    CASES = (grid(T=(0, 1, 12), D=(1, 15, 200), marks=between(0, 2), added=(0, 1)),)

    out: Value
    x: Value
    given: Value
    marks: Indices
    added: int = 0

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts one row read and one written, and an addition of each element where `added` is not 0."""
        return OpCost(per_row=Work(self.out.width if self.added else 0, activation_bytes=8 * self.out.width))
