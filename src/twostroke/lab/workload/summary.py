"""The mean and the percentiles of many values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """The distribution of `count` values, in their unit; percentiles interpolate linearly between the two nearest
    values."""

    count: int
    mean: float
    low: float
    p50: float
    p90: float
    p95: float
    p99: float
    high: float


def percentile(ordered: Sequence[float], share: float) -> float:
    """Returns the percentile of rising values; there is at least one. share: in [0, 1]."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def counted_percentile(counted: Sequence[tuple[float, int]], share: float) -> float:
    """Returns the `percentile` of values. counted: pairs (value, how often it occurs), in any order; at least one value
    occurs."""
    ordered = sorted(counted)
    total = sum(count for _, count in ordered)
    place = share * (total - 1)
    low = math.floor(place)
    low_value, high_value = _nth(ordered, low), _nth(ordered, min(low + 1, total - 1))
    return low_value + (high_value - low_value) * (place - low)


def _nth(ordered: Sequence[tuple[float, int]], place: int) -> float:
    for value, count in ordered:
        place -= count
        if place < 0:
            return value
    return ordered[-1][0]


def summary(values: Sequence[float]) -> Summary | None:
    """Returns the count, the mean, the smallest and the largest value, and the percentiles 50, 90, 95 and 99; None
    where there are no values."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p90, p95, p99 = (percentile(ordered, share) for share in (0.5, 0.9, 0.95, 0.99))
    return Summary(len(ordered), math.fsum(ordered) / len(ordered), ordered[0], p50, p90, p95, p99, ordered[-1])


def weighted_summary(pairs: Sequence[tuple[float, float]]) -> Summary | None:
    """Returns the summary of (value, weight) pairs. Each value counts in proportion to its weight. Percentiles are
    values that occur."""
    kept = sorted((value, weight) for value, weight in pairs if weight > 0)
    if not kept:
        return None
    total = math.fsum(weight for _, weight in kept)
    mean = math.fsum(value * weight for value, weight in kept) / total
    p50, p90, p95, p99 = (_reached(kept, share * total) for share in (0.5, 0.9, 0.95, 0.99))
    return Summary(round(total), mean, kept[0][0], p50, p90, p95, p99, kept[-1][0])


def _reached(kept: Sequence[tuple[float, float]], wanted: float) -> float:
    summed = 0.0
    for value, weight in kept:
        summed += weight
        if summed >= wanted:
            return value
    return kept[-1][0]
