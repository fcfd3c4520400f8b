"""One stay of a completion at a replica, by its front's clock."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class StayEnd(enum.Enum):
    """How a stream left a replica. HANDED: its prompt was computed there, and it is decoded elsewhere."""

    ENDED = 0
    LOST = 1
    HANDED = 2
    REFUSED = 3


@dataclass(eq=False, slots=True)
class ReplicaStay:
    """A stream at one replica, from its Assignment until it left. number: the number of the Assignment. num_told: the
    number of output tokens that the front had got before the stay."""

    member: str
    instance: str
    number: int
    since_s: float
    num_told: int
    until_s: float = 0.0
    end: StayEnd = StayEnd.ENDED

    @property
    def seconds(self) -> float:
        """How long the stay was, by the front's clock."""
        return self.until_s - self.since_s
