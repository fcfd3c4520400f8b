"""embed: rows of a packed table.

    out (T, columns) float32 = W[token_ids], dequantized. token_ids (T,) int32, each in [0, rows).

Knows: the contract, the reference, the cost. Must not know: implementations.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array, I32Array, PackedWeight, unpack


def reference(out: F32Array, table: PackedWeight, token_ids: I32Array) -> None:
    """See the module. Raises IndexError for a token id outside the table."""
    if token_ids.size and (int(token_ids.min()) < 0 or int(token_ids.max()) >= table.rows):
        raise IndexError(f"token id outside [0, {table.rows})")
    out[...] = unpack(table)[np.asarray(token_ids)]


def cost(out: F32Array, table: PackedWeight, token_ids: I32Array) -> Work:
    """One table row read and one output row written for each token."""
    row_bytes = table.total_bytes // max(1, table.rows)
    return Work(0, weight_bytes=row_bytes * len(token_ids), activation_bytes=4 * len(token_ids) * table.columns)
