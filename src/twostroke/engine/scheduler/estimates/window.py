"""The last few of some figures, and their quantiles: what remembers a little and forgets outliers."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence


class Window:
    """The last `size` values. `first` are there from the beginning and leave as the oldest.

    A quantile q is at most what a share 1 - q of wild values can spoil: the median stands half of them.
    """

    def __init__(self, size: int, first: Sequence[float] = ()) -> None:
        self._size = size
        self._values = deque(first)
        self._sorted = sorted(first)
        self.num_seen = 0

    def add(self, value: float) -> None:
        """Take one more; the oldest leaves when there are too many. A few microseconds."""
        self.num_seen += 1
        self._values.append(value)
        insort(self._sorted, value)
        if len(self._values) > self._size:
            del self._sorted[bisect_left(self._sorted, self._values.popleft())]

    def quantile(self, share: float) -> float | None:
        """The smallest value that at least this share of them does not pass; None of nothing."""
        count = len(self._sorted)
        return self._sorted[min(count - 1, int(share * count))] if count else None
