"""A simulated disk: production's own rules decide what is read and written, and transfers take their predicted time."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.sim.machines import setup
from tests.tiers import fewer
from twostroke.engine.disk.contract import DiskCounts
from twostroke.lab.sim.disk import SimulatedDisk
from twostroke.lab.sim.fleet.fleet import Fleet, FleetOutcome, FleetPlan
from twostroke.lab.sim.fleet.routing import LeastLoaded
from twostroke.lab.workload.request import WorkloadRequest

PAGE_BYTES = 16 * 1024
FAST, SLOW = 5e9, 2e5
TALK = 96
"""The pages of one conversation."""


def disk(read_rate: float = FAST, limit_bytes: int = 1 << 30, write_rate: float = FAST) -> SimulatedDisk:
    return SimulatedDisk(limit_bytes, read_rate, write_rate, 1e10, (PAGE_BYTES,))


def run(requests: Iterable[WorkloadRequest], own: SimulatedDisk | None, **changes: int) -> tuple[FleetOutcome, Fleet]:
    fleet = Fleet(FleetPlan(replace(setup(**changes), disk=own)), LeastLoaded())
    return fleet.run(requests), fleet


def talk(number: int, at_s: float, pages: int = TALK) -> WorkloadRequest:
    """A prompt whose pages are those of conversation number `number`."""
    blocks = tuple(range(1000 * number, 1000 * number + pages))
    return WorkloadRequest(at_s, 16 * pages + 5, 4, blocks, 16)


def counts(outcome: FleetOutcome) -> DiskCounts:
    found = outcome.members[0].replica.disk_counts
    assert found is not None
    return found


FIRST_AND_AGAIN = [talk(1, 0.0), talk(2, 20.0), talk(3, 40.0), talk(1, 60.0)]
"""130 pages have room for one conversation, so the first is evicted before it comes again."""


def ttft(outcome: FleetOutcome, place: int) -> float:
    seen = outcome.seen[place]
    return seen.times_s[0] - seen.asked.arrival_s


def test_what_memory_has_lost_is_read_from_the_disk() -> None:
    without, _ = run(FIRST_AND_AGAIN, None, num_pages=130)
    assert [each.cached_tokens for each in without.seen] == [0, 0, 0, 0]
    outcome, _ = run(FIRST_AND_AGAIN, disk(), num_pages=130)
    assert [each.cached_tokens for each in outcome.seen] == [0, 0, 0, 16 * TALK]
    assert [each.error for each in outcome.seen] == [""] * 4
    found = counts(outcome)
    assert found.read_tokens == 16 * TALK and found.read_bytes == TALK * PAGE_BYTES
    assert found.written_bytes >= 3 * TALK * PAGE_BYTES and found.lost == 0
    assert ttft(outcome, 3) < 0.5 * ttft(without, 3)
    assert ttft(outcome, 0) == pytest.approx(ttft(without, 0))


def test_a_slow_disk_is_left_alone_once_it_was_measured() -> None:
    requests = [talk(1 + number % 3, 30.0 * number) for number in range(9)]
    without, _ = run(requests, None, num_pages=130)
    outcome, _ = run(requests, disk(SLOW), num_pages=130)
    assert counts(outcome).refused > 0 and [each.error for each in outcome.seen] == [""] * 9
    assert ttft(outcome, 8) == pytest.approx(ttft(without, 8), rel=0.05)


def test_the_bound_on_bytes_holds_and_what_was_used_longest_ago_leaves() -> None:
    limit = 2 * TALK * PAGE_BYTES + PAGE_BYTES
    requests = [talk(1, 0.0), talk(2, 20.0), talk(3, 40.0), talk(3, 60.0, TALK + 1), talk(1, 80.0)]
    outcome, _ = run(requests, disk(limit_bytes=limit), num_pages=130)
    assert counts(outcome).removed_files > 0
    assert outcome.seen[4].cached_tokens == 0  # the first conversation made room for the third


def test_other_requests_are_computed_while_one_is_read() -> None:
    reading = [*FIRST_AND_AGAIN, talk(9, 60.0001, 2)]
    own = disk(TALK * PAGE_BYTES / 0.02)  # it takes a fifth of a second at most, so that it pays
    outcome, _ = run(reading, own, num_pages=130)
    if counts(outcome).read_tokens:
        assert outcome.seen[4].times_s[0] < outcome.seen[3].times_s[0]


@pytest.mark.parametrize("seed", range(fewer(12, quick=4)))
def test_whatever_comes_each_request_ends_once_and_all_pages_are_free(seed: int) -> None:
    dice = random.Random(seed)
    requests, at_s = [], 0.0
    for _ in range(60):
        at_s += dice.choice([0.0, 0.001, 0.05, 2.0])
        requests.append(talk(dice.randrange(6), at_s, dice.randint(1, TALK)))
    own = disk(dice.choice([SLOW, 5e7, FAST]), dice.choice([3 * TALK, 1000]) * PAGE_BYTES, dice.choice([1e5, FAST]))
    outcome, _ = run(requests, own, num_pages=dice.choice([130, 300]))
    assert len(outcome.seen) == 60 and all(each.error == "" and len(each.times_s) == 4 for each in outcome.seen)
    replica = outcome.members[0].replica
    replica.cache.check()
    assert replica.cache.pages_used == 0 and not replica.outstanding
    again, _ = run(requests, own, num_pages=130)
    same, _ = run(requests, own, num_pages=130)
    assert [list(each.times_s) for each in again.seen] == [list(each.times_s) for each in same.seen]
