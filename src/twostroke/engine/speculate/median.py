"""The median of measured times. Importing Python's own module of statistics takes milliseconds of each start."""

from __future__ import annotations

from collections.abc import Iterable


def median(times: Iterable[float]) -> float:
    """The value in the middle, or the mean of the two. Raises IndexError where there is none."""
    ordered = sorted(times)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
