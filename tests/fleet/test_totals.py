"""Counters of a front: the sums over all replicas that it ever had."""

from __future__ import annotations

from twostroke.distributed.fleet.totals import MOST_INSTANCES, FleetTotal, FleetTotals
from twostroke.distributed.wire.frames import ReplicaLoad
from twostroke.types.recorded.verified_guesses import VerifiedGuesses

ONE = ReplicaLoad(preemptions=2, query_tokens=30, hit_tokens=20, guesses=VerifiedGuesses(3, 9, 4, (3, 1)))


def test_the_latest_load_of_each_instance_counts() -> None:
    totals = FleetTotals()
    totals.heard("a", ReplicaLoad(preemptions=1, guesses=VerifiedGuesses(1, 2, 1, (1,))))
    totals.heard("a", ONE)
    assert totals.sum == FleetTotal(2, 30, 20, ONE.guesses)
    totals.heard("b", ReplicaLoad(preemptions=5, guesses=VerifiedGuesses(1, 3, 3, (1, 1, 1))))
    assert totals.sum == FleetTotal(7, 30, 20, VerifiedGuesses(4, 12, 7, (4, 2, 1)))


def test_instances_without_number_are_bounded_and_lose_no_count() -> None:
    totals = FleetTotals()
    for number in range(2 * MOST_INSTANCES):
        totals.heard(f"instance {number}", ONE)
    assert totals.sum.preemptions == 2 * 2 * MOST_INSTANCES
    assert totals.sum.guesses.accepted == 4 * 2 * MOST_INSTANCES
    assert len(totals._latest) == MOST_INSTANCES
