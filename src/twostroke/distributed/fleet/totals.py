"""Sums over all replicas that were ever connected, for counters: the sums do not fall when a replica leaves."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from twostroke.distributed.wire.frames import ReplicaLoad
from twostroke.types.verified_guesses import NO_GUESSES, VerifiedGuesses

MOST_INSTANCES = 1024
"""The number of instances that are kept separately; of older instances only the sum is kept."""


class FleetTotal(Struct, frozen=True):
    """Sums of the counts in loads. An instance of a replica counts from its own start on."""

    preemptions: int = 0
    query_tokens: int = 0
    hit_tokens: int = 0
    guesses: VerifiedGuesses = NO_GUESSES

    def plus(self, load: ReplicaLoad | FleetTotal) -> FleetTotal:
        """Returns the sum of this total and a load, or another total."""
        return FleetTotal(
            self.preemptions + load.preemptions,
            self.query_tokens + load.query_tokens,
            self.hit_tokens + load.hit_tokens,
            self.guesses.plus(load.guesses),
        )


class FleetTotals:
    """Adds up the loads of all instances. One thread reports loads; any thread may read the sum."""

    def __init__(self) -> None:
        self._latest: OrderedDict[str, ReplicaLoad] = OrderedDict()
        self._older = FleetTotal()

    def heard(self, instance: str, load: ReplicaLoad) -> None:
        """Takes the present load of an instance, which replaces its earlier load."""
        self._latest[instance] = load
        self._latest.move_to_end(instance)
        if len(self._latest) > MOST_INSTANCES:
            self._older = self._older.plus(self._latest.popitem(last=False)[1])

    @property
    def sum(self) -> FleetTotal:
        """The sums of all instances so far."""
        total = self._older
        for load in list(self._latest.values()):
            total = total.plus(load)
        return total
