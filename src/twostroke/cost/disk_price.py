"""What reading pages from a disk costs, and whether it is sooner than computing them."""

from __future__ import annotations

from twostroke.cost.explain.causes import prefill_s
from twostroke.cost.shape import StepCost

FIRST_RATE = 200e6
"""Bytes a second before the first reading was measured: a slow disk over SATA."""
GREETING_S = 0.002
"""Seconds that a reading takes next to its bytes."""
WORTH = 0.5
"""Pages are read where that takes less than this share of the seconds of computing them."""
LEARNED = 0.3
"""The weight of the newest reading in the moving mean of the rate."""
LEAST_BYTES = 64 << 10
"""Smaller readings say nothing of the rate."""


class DiskPrice:
    """cost: predicts steps. step_tokens: the token budget of a step. rate: bytes a second, checks included."""

    def __init__(self, cost: StepCost, step_tokens: int, rate: float = FIRST_RATE) -> None:
        self._cost, self._step_tokens, self.rate = cost, step_tokens, rate
        self._measured = False

    def observe(self, num_bytes: int, seconds: float) -> None:
        """A reading took so long."""
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
        """Are the pages of these positions read sooner than computed, by far?"""
        return self.reading_s(num_bytes) < WORTH * self.computing_s(start, end)
