"""best_losses finds the errors that rounding a product's inputs makes in each row's largest results (ADR 80).

    out (R, 2 C) float32 = [losses (R, C) | numbers (R, C)], logits (R, N) float32 = linear(x, W), x (R, columns).

numbers: the columns of the row's C largest logits, in falling order. Of equal logits the first comes first, and NaN
counts as the largest. Where W is of an integer kind, losses are (x - q * scale) @ W[numbers].T in float32: q and scale
are those with which `linear` rounds the same rows. Where W is of floats, nothing is rounded, and all of `out` is 0.

first: the logit that W's first row makes, where W is the part of one rank. Losses of other ranks' rows are 0. One row's
result depends on that row alone.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import CODES, FLOATS, grid
from twostroke.ops.operands import F32Array, PackedWeight
from twostroke.ops.products.linear import quantize_rows
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Weight
from twostroke.ops.rotation import rotated_columns
from twostroke.ops.unpack import packed_values

BEST = 20
"""How many of a row's largest logits are corrected: the error that comes from rounding the head's inputs to int8 is
added back. An answer lists the log probabilities of at most so many tokens."""

READ_TOGETHER = 16
"""The layout of a packed matrix puts this many rows in each cache line, so reading one row reads the bytes of all of
them."""


def reference(out: F32Array, logits: F32Array, x: F32Array, weight: PackedWeight, first: int = 0) -> None:
    out[...] = 0
    if weight.format.kind.is_float:
        return
    count = out.shape[1] // 2
    order = np.where(np.isnan(logits), -np.inf, -logits), np.where(np.isnan(logits), 0, 1)
    numbers = np.lexsort(order, axis=1)[:, :count]
    lost = lost_of(x, weight)
    values = packed_values(weight)[: weight.rows, : lost.shape[1]]  # a type's blocks may be longer than its groups
    for row, chosen in enumerate(numbers):
        own = (chosen >= first) & (chosen < first + weight.rows)
        out[row, :count][own] = (values[chosen[own] - first] * lost[row]).sum(axis=1)  # in one order for any ranks
    out[:, count:] = numbers


def lost_of(x: F32Array, weight: PackedWeight) -> F32Array:
    """Returns x - q * scale, what rounding to int8 by `quantize_rows` takes from x: (R, padded columns), in the order
    of the weight's columns."""
    group, padded = weight.format.activation_columns, weight.format.padded_columns(weight.columns)
    x = rotated_columns(x) if weight.format.rotated else x
    q, scales = quantize_rows(x, group, padded)
    lost = np.zeros((len(x), padded), np.float32)
    lost[:, : x.shape[1]] = x
    lost -= q.astype(np.float32) * np.repeat(scales, group, axis=1)[:, :padded]
    return lost


@op
class BestLosses(Op):
    """The rounding errors of a row's largest logits (exact inputs minus rounded inputs, times the matrix), and these
    logits' columns."""

    SHAPES = {"out": "R B", "logits": "R N", "x": "R K", "weight": "V K"}
    CASES = (
        grid(2e-5, formats=CODES, R=(0, 1, 5), B=(2, 40), N=(20, 200), V="N", K=(1, 64, 300), first=0),
        grid(2e-5, formats=CODES, R=5, B=40, N=300, V=130, K=300, first=(0, 70, 170)),
        grid(0, formats=FLOATS, R=(1, 5), B=40, N=200, V="N", K=64, first=0),
    )
    OWN_ROWS = "weight"

    out: Value
    logits: Value
    x: Value
    weight: Weight
    first: int = 0

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts one read of the logits, and for each loss that is computed, one row of the matrix, with the other rows
        that share its cache lines. With a float matrix nothing is rounded, and only the writing of zeros is counted."""
        if formats.format_for(self.weight).kind.is_float:
            return OpCost(per_row=Work(0, activation_bytes=4 * self.out.width))
        count, columns = self.out.width // 2, self.weight.columns
        row_bytes = formats.weight_bytes(self.weight) // max(1, self.weight.rows)
        read = 4 * (self.logits.width + columns)
        return OpCost(
            per_row=Work(2 * count * columns, weight_bytes=READ_TOGETHER * count * row_bytes, activation_bytes=read)
        )
