"""add_losses: adds the losses that `best_losses` found to the logits, in place.

    out (R, N) float32: out[r, numbers[r, i]] += losses[r, i], for each of the C losses of each rank.

losses (R, P * 2 C) float32: the results of best_losses of P ranks, one after the other; all have the same numbers. A
loss of 0 changes no bit. count: C.
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
"""The numbers of losses and of logits of each row in the op's cases."""


def reference(out: F32Array, losses: F32Array, count: int) -> None:
    """See the module."""
    for row, own in enumerate(losses):
        numbers = own[count : 2 * count].astype(np.int64)
        for part in range(0, len(own), 2 * count):
            some = own[part : part + count]
            out[row, numbers[some != 0]] += some[some != 0]


def _found(random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
    """Makes losses of one or more ranks. Each number has a loss on one rank alone."""
    found = np.zeros((shape[0], shape[1] // (2 * CASE_COUNT), 2, CASE_COUNT), np.float32)
    for row in found:
        row[:, 1] = random.permutation(CASE_WIDTH)[:CASE_COUNT]
        row[random.integers(len(row), size=CASE_COUNT), 0, np.arange(CASE_COUNT)] = random.standard_normal(CASE_COUNT)
    return found.reshape(shape)


@op
class AddLosses(Op):
    """The logits, with the losses of the largest added."""

    SHAPES = {"out": "R N", "losses": "R *"}
    CASES = (grid(R=(0, 1, 5), N=CASE_WIDTH, losses=(Filled("10", _found), Filled("30", _found)), count=CASE_COUNT),)

    out: Value
    losses: Value
    count: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts the losses and numbers, and as many logits read and written."""
        return OpCost(per_row=Work(self.count, activation_bytes=4 * self.losses.width + 8 * self.count))
