"""embed: rows of a packed table.

    out (T, columns) float32 = W[token_ids], dequantized. token_ids (T,) int32, each in [0, rows).
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import below, grid
from twostroke.ops.operands import F32Array, I32Array, PackedWeight
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Indices, Value, Weight
from twostroke.ops.unpack import unpack


def reference(out: F32Array, table: PackedWeight, token_ids: I32Array) -> None:
    """See the module. Raises IndexError for a token id outside the table."""
    if token_ids.size and (int(token_ids.min()) < 0 or int(token_ids.max()) >= table.rows):
        raise IndexError(f"token id outside [0, {table.rows})")
    out[...] = unpack(table)[np.asarray(token_ids)]


@op
class Embed(Op):
    """One row of the table for each id."""

    SHAPES = {"out": "T D", "table": "N D", "token_ids": "T"}
    CASES = (grid(T=(0, 1, 6), N=(1, 63, 200), D=(1, 31, 300), token_ids=below("N")),)

    out: Value
    table: Weight
    token_ids: Indices

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts one table row read and one output row written for each id."""
        row_bytes = formats.weight_bytes(self.table) // max(1, self.table.rows)
        return OpCost(per_row=Work(0, weight_bytes=row_bytes, activation_bytes=4 * self.table.columns))


def embed(table: Weight, ids: Indices, like: Tracer) -> Value:
    """Records the call and returns the rows of `table` for these ids."""
    out = like.rows(ids.count, table.columns)
    like.record(Embed(out, table, ids))
    return out
