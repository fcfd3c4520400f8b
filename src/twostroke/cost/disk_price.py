"""Predicts how long it takes to read pages from a disk, and whether reading is quicker than computing them."""

from __future__ import annotations

from twostroke.cost.explain.causes import prefill_s
from twostroke.cost.shape import StepCost

FIRST_RATE = 200e6
"""The bytes a second that are assumed until a reading was measured: those of a slow disk over SATA."""
GREETING_S = 0.002
"""The seconds of a reading that do not depend on its size."""
WORTH = 0.5
"""Pages are read when reading takes less than this share of the seconds of computing them."""
LEARNED = 0.3
"""The weight of the newest reading in the moving mean of the rate."""
LEAST_BYTES = 64 << 10
"""Smaller readings do not show the rate of the disk, so they are not counted."""


class DiskPrice:
    """Predicts the seconds of reading pages from a disk, and those of computing their positions instead.

    cost: predicts steps. step_tokens: the most rows of a step that computes. rate: the bytes that are read in a second,
    with the check of the bytes.
    """

    def __init__(self, cost: StepCost, step_tokens: int, rate: float = FIRST_RATE) -> None:
        self._cost, self._step_tokens, self.rate = cost, step_tokens, rate
        self._measured = False

    def observe(self, num_bytes: int, seconds: float) -> None:
        """Learn the rate from a reading of `num_bytes` that took `seconds`."""
        if num_bytes < LEAST_BYTES or seconds <= 0:
            return
        rate = num_bytes / seconds
        self.rate += (rate - self.rate) * (LEARNED if self._measured else 1.0)
        self._measured = True

    def reading_s(self, num_bytes: int) -> float:
        """Predict how many seconds it takes to read this number of bytes."""
        return GREETING_S + num_bytes / self.rate

    def computing_s(self, start: int, end: int) -> float:
        """Predicted seconds of computing positions [start, end) alone."""
        return prefill_s(self._cost, start, end, self._step_tokens)

    def worth_reading(self, num_bytes: int, start: int, end: int) -> bool:
        """Whether reading the pages of positions [start, end) takes less than half as long as computing them (WORTH).
        num_bytes: the size of these pages."""
        return self.reading_s(num_bytes) < WORTH * self.computing_s(start, end)
