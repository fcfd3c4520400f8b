"""Measures the seconds of one call: the median of enough calls in a row."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LEAST_S = 0.012
"""The least seconds of one timing."""

Call = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Times calls. clock: returns seconds that never decrease. least_s: the least seconds of one timing."""

    clock: Callable[[], float]
    least_s: float = LEAST_S

    def times(self, calls: Sequence[Call], first: int = 0) -> tuple[list[float], int]:
        """Makes `calls` in turn, from number `first` on. Returns the seconds of each call, and the number of the call
        that would be next."""
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
        """Returns the median seconds of a call. One call that is not timed comes first; in it threads wake up and
        scratch memory is allocated."""
        calls[0]()
        return usual(self.times(calls)[0])


def usual(times: Sequence[float]) -> float:
    """Returns the median, so that the time which other processes take for a moment does not count. Raises ValueError
    where there are no times."""
    if not times:
        raise ValueError("nothing was timed")
    return statistics.median(times)
