"""Sums over all replicas that were ever here, for counters: they do not fall where a replica leaves."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from twostroke.distributed.wire.frames import ReplicaLoad
from twostroke.types.verified_guesses import NO_GUESSES, VerifiedGuesses

MOST_INSTANCES = 1024
"""Instances that are told apart; of older ones the sum alone is kept."""


class FleetTotal(Struct, frozen=True):
    """What loads count. An instance of a replica counts from its own start on."""

    preemptions: int = 0
    query_tokens: int = 0
    hit_tokens: int = 0
    guesses: VerifiedGuesses = NO_GUESSES

    def plus(self, load: ReplicaLoad | FleetTotal) -> FleetTotal:
        """The sums of both."""
        return FleetTotal(
            self.preemptions + load.preemptions,
            self.query_tokens + load.query_tokens,
            self.hit_tokens + load.hit_tokens,
            self.guesses.plus(load.guesses),
        )


class FleetTotals:
    """One thread tells what it heard; any thread may ask."""

    def __init__(self) -> None:
        self._latest: OrderedDict[str, ReplicaLoad] = OrderedDict()
        self._older = FleetTotal()

    def heard(self, instance: str, load: ReplicaLoad) -> None:
        """The load of an instance now, which takes the place of what was heard of it before."""
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
