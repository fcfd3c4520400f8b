"""A clock that advances only when it is told to."""

from __future__ import annotations


class VirtualClock:
    """Seconds since the simulation began. Calling it returns the time, as with the engine's clocks."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """The time, in seconds."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Lets time pass. Raises ValueError for a negative number of seconds."""
        if seconds < 0:
            raise ValueError(f"time does not go back by {-seconds} s")
        self.now_s += seconds

    def advance_to(self, at_s: float) -> None:
        """Lets time pass until at_s. A time in the past changes nothing."""
        self.now_s = max(self.now_s, at_s)
