"""A timer that is set very often and seldom rings. Setting it only stores a number; the event loop holds one handle at
a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LazyTimer:
    """Calls `ring` once, when the delay that was set last is over; `clear` cancels it. Setting a later time needs no
    new timer of the event loop. All calls must come from one event loop."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ring = ring
        self._at_s: float | None = None
        self._handle: asyncio.TimerHandle | None = None

    def set(self, delay_s: float) -> None:
        """Call `ring` after delay_s seconds. An earlier setting is cancelled."""
        self._at_s = self._loop.time() + delay_s
        if self._handle is None or self._handle.when() > self._at_s:
            self._arm(self._at_s)

    def clear(self) -> None:
        """Stop the timer, so that it does not ring."""
        self._at_s = None

    def close(self) -> None:
        """Stops the timer for good, and cancels the event loop's timer. It must not be set again."""
        self._at_s = None
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self, at_s: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_at(at_s, self._due)

    def _due(self) -> None:
        self._handle = None
        if self._at_s is None:
            return
        if self._at_s > self._loop.time():
            self._arm(self._at_s)
            return
        self._at_s = None
        self._ring()
