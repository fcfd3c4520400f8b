"""Records the time that a completion spends at one replica (a stay), by the clock of the front before the replicas."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class StayEnd(enum.Enum):
    """Why a stream left a replica. ENDED: the stream ended, with or without an error. LOST: the replica was lost.
    HANDED: the replica computed the prompt, and another one decodes. REFUSED: the replica did not accept it."""

    ENDED = 0
    LOST = 1
    HANDED = 2
    REFUSED = 3


@dataclass(eq=False, slots=True)
class ReplicaStay:
    """The time that a stream spends at one replica, from its Assignment until it left. member, instance: the name and
    the instance of the replica. number: the number of the Assignment. num_told: the number of output tokens that the
    front had before."""

    member: str
    instance: str
    number: int
    since_s: float
    num_told: int
    until_s: float = 0.0
    end: StayEnd = StayEnd.ENDED

    @property
    def seconds(self) -> float:
        """The seconds that the stream spent at the replica, by the front's clock."""
        return self.until_s - self.since_s
