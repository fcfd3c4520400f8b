"""Tells whether other programs need the memory that cached prefixes would take.

The pool of K and V is planned at the start, and takes its memory as pages are used. Programs that start later are not
in that plan. Where they leave little free memory, cached prefixes give up their pages before the pool takes new memory.
Sequences that run still get all that the plan promised.
"""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_S = 1.0
"""The time in seconds after which the free memory is read again."""


class SpareMemory:
    """Compares the free memory of the machine with the least that must stay free. free_bytes: reads the former.
    least_bytes: returns the latter. clock: the time in seconds."""

    def __init__(
        self,
        free_bytes: Callable[[], int],
        least_bytes: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._free_bytes = free_bytes
        self._least_bytes = least_bytes
        self._clock = clock
        self._next_s = float("-inf")
        self._is_short = False

    def is_short(self) -> bool:
        """Returns whether less memory is free than must stay free. The answer is at most EVERY_S old."""
        now_s = self._clock()
        if now_s >= self._next_s:
            self._next_s = now_s + EVERY_S
            self._is_short = self._free_bytes() < self._least_bytes()
        return self._is_short
