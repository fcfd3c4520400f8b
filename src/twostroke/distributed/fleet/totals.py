"""Sums of counters over all replicas that were ever connected: the sums do not fall when a replica leaves."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from twostroke.distributed.wire.frames import ReplicaLoad
from twostroke.types.recorded.verified_guesses import NO_GUESSES, VerifiedGuesses

MOST_INSTANCES = 1024
"""The number of replica processes whose counts are kept separately; of older ones only the sum is kept."""


class FleetTotal(Struct, frozen=True):
    """The sums of counters that replicas report in `ReplicaLoad`, over all replicas since the front started. A
    replica's own counters begin at 0 with each start of its process."""

    preemptions: int = 0
    query_tokens: int = 0
    hit_tokens: int = 0
    guesses: VerifiedGuesses = NO_GUESSES

    def plus(self, load: ReplicaLoad | FleetTotal) -> FleetTotal:
        """Returns this total with a replica's counters, or another total, added to it."""
        return FleetTotal(
            self.preemptions + load.preemptions,
            self.query_tokens + load.query_tokens,
            self.hit_tokens + load.hit_tokens,
            self.guesses.plus(load.guesses),
        )


class FleetTotals:
    """Adds up the counters of all instances, that is, of all starts of replica processes. One thread reports loads; any
    thread may read the sum."""

    def __init__(self) -> None:
        self._latest: OrderedDict[str, ReplicaLoad] = OrderedDict()
        self._older = FleetTotal()

    def heard(self, instance: str, load: ReplicaLoad) -> None:
        """Takes the latest counters of an instance, which replace its earlier ones."""
        self._latest[instance] = load
        self._latest.move_to_end(instance)
        if len(self._latest) > MOST_INSTANCES:
            self._older = self._older.plus(self._latest.popitem(last=False)[1])

    @property
    def sum(self) -> FleetTotal:
        """The sums of the counters over all instances so far."""
        total = self._older
        for load in list(self._latest.values()):
            total = total.plus(load)
        return total
