"""A histogram of the gaps between two tokens of an answer: it takes many values at once, where prometheus_client takes
1.5 us for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Gaps(Collector):
    """A Prometheus histogram of the gaps between two tokens of an answer. Only one thread may add values. Any thread
    may collect; a few of the latest values may then be missing. bounds: the upper bounds of the buckets, ascending."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self._name, self._text = name, text
        self._bounds = list(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, values: Sequence[float]) -> None:
        """Counts each value in the first bucket whose bound it does not exceed. The values of one step are mostly
        equal, so one search for the bucket is usually enough for all."""
        bounds, counts = self._bounds, self._counts
        low, high = bisect_left(bounds, min(values)), bisect_left(bounds, max(values))
        if low == high:
            counts[low] += len(values)
        else:
            for value in values:
                counts[bisect_left(bounds, value)] += 1
        self._sum += sum(values)

    def collect(self) -> Iterator[Metric]:
        """Yields the histogram."""
        family = HistogramMetricFamily(self._name, self._text)
        names = [*(repr(float(bound)) for bound in self._bounds), "+Inf"]
        buckets = list(zip(names, map(float, accumulate(self._counts)), strict=True))
        family.add_metric([], buckets, self._sum)
        yield family
