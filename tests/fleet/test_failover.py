"""Streams survive their replicas: the same tokens, each sent once, and one end each, whatever is cut, delayed or
killed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.fleet.invented import whole_answer, whole_answers
from tests.fleet.world import World, beams_of, request_of
from tests.tiers import thinned
from twostroke.types.request import FinishReason, Request

SCHEDULES, RUNS = 10_000, 60
"""The number of seeds, and of the seeds that a run tries; the seed of the run chooses them.
tests/fleet/test_ten_thousand.py tries more."""
MOST = 12
"""The most requests of a world, unless a test sets fewer."""
CHAOS = {"cut_rate": 0.3, "death_rate": 0.1, "hang_rate": 0.05}


def run_world(seed: int, count: int = MOST, **rates: float) -> tuple[World, list[str]]:
    """A world of `count` requests and a quarter as many beam searches. Every answer is compared with that of an engine
    without faults. Also returns the names of those that ended with an error."""
    world = World(seed, **rates)  # type: ignore[arg-type]
    dice = random.Random(seed + 1)
    requests = {}
    for index in range(count):
        request = request_of(dice, f"q{index}", 0.0)
        requests[request.request_id] = request

        def come(request_id: str = request.request_id) -> None:
            world.submit(requests[request_id])

        world.at(dice.uniform(0, 2.0), come)
    groups = [beams_of(dice, f"b{index}", 0.0) for index in range(count // 4)]
    members = [request for group in groups for request in group]
    for group in groups:
        world.at(dice.uniform(0, 2.0), lambda group=group: [world.submit(each) for each in group])  # type: ignore[misc]
    names = [*requests, *(each.request_id for each in members)]
    world.run(120.0, lambda: world.ended >= len(names))
    wrong = [name for group in groups for name in failed_beams(world, group)]
    for name, request in requests.items():
        ends = world.ends_of(name)
        assert len(ends) == 1, f"{name} ended {len(ends)} times"
        if ends[0].reason is FinishReason.ERROR:
            wrong.append(name)
            assert ends[0].error is not None and "three replicas" in ends[0].error
        elif world.tokens_of(name) != whole_answer(request):
            raise AssertionError(f"{name}: {world.tokens_of(name)} instead of {whole_answer(request)}")
    return world, wrong


def failed_beams(world: World, group: list[Request]) -> list[str]:
    """The searches that ended without an answer. All others have the answer of a replica without faults."""
    ends = [end for each in group for end in world.ends_of(each.request_id)]
    assert len(ends) == len(group), "one end each"
    if any(end.reason is FinishReason.ERROR for end in ends):
        assert all("three replicas" in (end.error or "") for end in ends)
        return [each.request_id for each in group]
    found = [(world.tokens_of(each.request_id), end.score) for each, end in zip(group, ends, strict=True)]
    assert found == whole_answers(group)
    return []


@pytest.mark.parametrize("seed", thinned(range(SCHEDULES), "failover", RUNS))
def test_cut_connections_and_deaths_change_no_answer(seed: int) -> None:
    world, wrong = run_world(seed, **CHAOS)
    assert world.deaths >= 3 or wrong == []
    for core in world.cores.values():
        assert core.load().running + core.load().waiting <= 4


def test_nothing_happens_to_streams_where_nothing_happens() -> None:
    world, wrong = run_world(7)
    assert wrong == [] and world.fleet.moved == 0


@pytest.mark.parametrize("seed", range(10))
def test_cut_connections_alone_end_no_stream(seed: int) -> None:
    world, wrong = run_world(seed, cut_rate=2.0)
    assert wrong == [] and world.fleet.moved > 0


def test_deaths_do_move_streams() -> None:
    """This shows that the tests above do test deaths."""
    moved = [run_world(seed, death_rate=0.3)[0] for seed in range(5)]
    assert sum(world.fleet.moved for world in moved) > 5 and sum(world.deaths for world in moved) > 5


def test_a_request_that_kills_replicas_is_given_up() -> None:
    world = World(1, replicas=4)
    request = replace(request_of(random.Random(0), "killer", 0.0), max_tokens=60, end_token_ids=frozenset())
    world.run(0.2, lambda: False)
    world.submit(request)
    while not world.ends_of("killer"):
        for stream in list(world.fleet._streams.values()):
            if stream.member is not None:
                world._die(stream.member.name, world.cores[stream.member.name])
        world.run(world.now + 0.05, lambda: False)
    (end,) = world.ends_of("killer")
    assert end.reason is FinishReason.ERROR and "three replicas" in (end.error or "")
    assert 3 <= world.deaths <= 8
