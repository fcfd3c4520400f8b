"""add_losses: adds to the largest logits what rounding took from them, in place.

    out (R, N) float32: out[r, numbers[r, i]] += losses[r, i], for each of the C losses of each rank.

losses (R, P * 2 C) float32: the results [losses | numbers] of the op best_losses on P ranks, one after the other; all
have the same numbers. A loss of 0 changes no bit. count: C.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.cost.work import Work
from twostroke.ops.cases import Filled, Sizes, grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value

CASE_COUNT, CASE_WIDTH = 5, 40
"""In the op's test cases: how many logits of a row are corrected, and how many logits a row has."""


def reference(out: F32Array, losses: F32Array, count: int) -> None:
    for row, own in enumerate(losses):
        numbers = own[count : 2 * count].astype(np.int64)
        for part in range(0, len(own), 2 * count):
            some = own[part : part + count]
            out[row, numbers[some != 0]] += some[some != 0]


def _found(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
    """Makes random content for the operand `losses`: each rank's results [losses | numbers] of the op best_losses. In a
    row, all ranks name the same logits. For each of these logits, one rank has the rounding error, and the others have
    0."""
    found = np.zeros((shape[0], shape[1] // (2 * CASE_COUNT), 2, CASE_COUNT), np.float32)
    for row in found:
        row[:, 1] = random.permutation(CASE_WIDTH)[:CASE_COUNT]
        row[random.integers(len(row), size=CASE_COUNT), 0, np.arange(CASE_COUNT)] = random.standard_normal(CASE_COUNT)
    return found.reshape(shape)


@op
class AddLosses(Op):
    """Logits, of which the largest are corrected by the errors that best_losses found."""

    SHAPES = {"out": "R N", "losses": "R *"}
    CASES = (grid(R=(0, 1, 5), N=CASE_WIDTH, losses=(Filled("10", _found), Filled("30", _found)), count=CASE_COUNT),)

    out: Value
    losses: Value
    count: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts a read of the operand `losses`, the rounding errors. For each of the `count` logits to which they are
        added, it counts a read and a write."""
        return OpCost(per_row=Work(self.count, activation_bytes=4 * self.losses.width + 8 * self.count))
