"""The last few values of a quantity, and their quantiles: a short memory that outliers hardly change."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence


class Window:
    """The last `size` values of a quantity. first: values that fill the window at the beginning, and are the first to
    leave it.

    Outliers change a quantile q only when their share is more than 1 - q: the median withstands half of them.
    """

    def __init__(self, size: int, first: Sequence[float] = ()) -> None:
        self._size = size
        self._values = deque(first)
        self._sorted = sorted(first)
        self.num_seen = 0

    def add(self, value: float) -> None:
        """Add one value. The oldest leaves when there are too many. A call takes a few microseconds."""
        self.num_seen += 1
        self._values.append(value)
        insort(self._sorted, value)
        if len(self._values) > self._size:
            del self._sorted[bisect_left(self._sorted, self._values.popleft())]

    def quantile(self, share: float) -> float | None:
        """Returns the quantile for this share of the values, such as the median for 0.5; None without values."""
        count = len(self._sorted)
        return self._sorted[min(count - 1, int(share * count))] if count else None
