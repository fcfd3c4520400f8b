"""Bounds the bytes of request bodies that are held at the same time, from their first byte until they are parsed.

Only bytes that have come count: a request that announces much and sends little takes no room from others.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.server.errors import HttpProblem
from twostroke.server.gate.refusals import bodies_full

BODY_MEMORY_BYTES = 256 * 1024 * 1024
LEAST_BODY_BYTES = 8 * 1024 * 1024


def most_of_one_body(memory_bytes: int) -> int:
    """Returns the size of the longest body, in bytes: a quarter of the memory for all bodies. A history of a million
    tokens with screenshots has 30 MB."""
    return max(LEAST_BODY_BYTES, memory_bytes // 4)


@dataclass(eq=False)
class BodyBudget:
    """Counts the bytes of the request bodies that are held, against a limit. Used on one event loop. One body alone may
    exceed the limit; otherwise it would never be read.

    held_bytes: the bytes of all bodies now. refused: the number of bodies that did not fit.
    """

    limit_bytes: int = BODY_MEMORY_BYTES
    held_bytes: int = 0
    refused: int = 0

    def check(self, more_bytes: int, own_bytes: int) -> None:
        """Raises HttpProblem (503) when this many bytes do not fit next to other bodies. own_bytes: the bytes that this
        body holds."""
        if self.held_bytes > own_bytes and self.held_bytes + more_bytes > self.limit_bytes:
            self.refused += 1
            raise HttpProblem(bodies_full())

    def take(self, more_bytes: int, own_bytes: int) -> None:
        """Count bytes that have arrived. When there is no room, it does not count them and raises HttpProblem (503)."""
        self.check(more_bytes, own_bytes)
        self.held_bytes += more_bytes

    def give_back(self, size_bytes: int) -> None:
        """Give back `size_bytes` bytes, which are not held any more."""
        self.held_bytes -= size_bytes
