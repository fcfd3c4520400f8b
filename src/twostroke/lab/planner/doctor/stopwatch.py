"""Seconds of one call: the median of enough calls in a row."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LEAST_S = 0.012
"""One timing lasts at least this long."""

Call = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """clock: seconds, rising. least_s: how long a timing lasts at least."""

    clock: Callable[[], float]
    least_s: float = LEAST_S

    def times(self, calls: Sequence[Call], first: int = 0) -> tuple[list[float], int]:
        """Seconds of each call, taking `calls` in turn from `first` on, and the place after the last one taken."""
        taken: list[float] = []
        at, began = first % len(calls), self.clock()
        now = began
        while now - began < self.least_s or not taken:
            calls[at]()
            at = (at + 1) % len(calls)
            before, now = now, self.clock()
            taken.append(now - before)
        return taken, at

    def seconds(self, calls: Sequence[Call]) -> float:
        """The usual call. One is made beforehand: threads wake up, scratch memory is taken."""
        calls[0]()
        return usual(self.times(calls)[0])


def usual(times: Sequence[float]) -> float:
    """The median: what other processes take away for a moment must not count. Raises ValueError for none."""
    if not times:
        raise ValueError("nothing was timed")
    return statistics.median(times)
