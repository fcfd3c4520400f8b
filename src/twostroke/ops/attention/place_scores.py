"""place_scores: each head's vector times a vector of every place (disentangled attention; He et al. 2021).

    out (T, H, B) float32: out[t, h, b] = sum over d of x[t, h, d] * table[h, d, b]; x (T, H, D) float32, table
                           (H * D * B,) float32, B the number of places.

A place is a class of distances (placed_attention.py). Sums go over d in order, so one row's result depends on that row
alone.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import Value, Vector


def reference(out: F32Array, x: F32Array, table: F32Array) -> None:
    out[...] = np.einsum("thd,hdb->thb", x, table.reshape(x.shape[1], x.shape[2], -1))


@op
class PlaceScores(Op):
    """The products of each head's vector with a learned vector of every place (a class of relative distances)."""

    SHAPES = {"out": "T H B", "x": "T H D", "table": "*"}
    CASES = (grid(1e-5, T=(1, 3, 37), H=(1, 3), D=(1, 15), B=(1, 17, 100), table="H D B"),)
    PART = OpPart.PRODUCT

    out: Value
    x: Value
    table: Vector

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts a multiplication and an addition with each number of `table` for each row. `table` is read once for
        all rows."""
        moved = 4 * (self.x.width + self.out.width)
        return OpCost(Work(0, weight_bytes=4 * self.table.length), Work(2 * self.table.length, activation_bytes=moved))


def place_scores(x: Value, table: Vector) -> Value:
    """Records the call, and returns (T, H, B): the score of each head's vector in x (T, H, D) for each of B classes of
    relative distance. table (H, D, B): a learned vector for each class. Raises ValueError for a table of another
    size."""
    places, left = divmod(table.length, x.width)
    if left or not places:
        raise ValueError(f"{table.length} numbers are not a table for rows of {x.width} numbers")
    out = x.fresh(x.shape[0], places)
    x.trace.record(PlaceScores(out, x, table))
    return out
