"""How many bytes of request bodies there may be at the same time, from their first byte until they are parsed.

Only bytes that have come count: a request that announces much and sends little takes no room from others.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.server.errors import HttpProblem
from twostroke.server.gate.refusals import bodies_full

BODY_MEMORY_BYTES = 256 * 1024 * 1024
LEAST_BODY_BYTES = 8 * 1024 * 1024


def most_of_one_body(memory_bytes: int) -> int:
    """The longest body: a quarter of the memory for all. A history of a million tokens with screenshots has 30 MB."""
    return max(LEAST_BODY_BYTES, memory_bytes // 4)


@dataclass(eq=False)
class BodyBudget:
    """Used on one event loop. One body alone may pass the bound, or it would never be read."""

    limit_bytes: int = BODY_MEMORY_BYTES
    held_bytes: int = 0
    refused: int = 0

    def check(self, more_bytes: int, own_bytes: int) -> None:
        """Do this many bytes fit next to other bodies? own_bytes: what this body holds. Raises HttpProblem (503)."""
        if self.held_bytes > own_bytes and self.held_bytes + more_bytes > self.limit_bytes:
            self.refused += 1
            raise HttpProblem(bodies_full())

    def take(self, more_bytes: int, own_bytes: int) -> None:
        """Count bytes that have arrived. Raises HttpProblem (503) where there is no room, and does not count them
        then."""
        self.check(more_bytes, own_bytes)
        self.held_bytes += more_bytes

    def give_back(self, size_bytes: int) -> None:
        """Give this many bytes back."""
        self.held_bytes -= size_bytes
