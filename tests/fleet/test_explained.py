"""Why a request to a front took so long: its parts add up to its whole time, wherever it was computed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.fleet.test_failover import CHAOS, RUNS, SCHEDULES, run_world
from tests.fleet.test_handover import LOSSES, run_split
from tests.fleet.world import World, request_of
from tests.tiers import thinned
from twostroke.cost.explain.explanation import CauseKind, Explanation, words
from twostroke.types.request import Request


def check_sum(world: World, explanation: Explanation) -> None:
    name = explanation.request_id
    (end,) = world.ends_of(name)
    account = world.fleet.ledger.accounts.find(name)[0]
    assert explanation.e2e_s == pytest.approx(end.at_s - account.arrival_s)
    assert sum(explanation.parts_s.values()) == pytest.approx(explanation.e2e_s, abs=1e-9)
    assert all(seconds >= -1e-9 for seconds in explanation.parts_s.values()), explanation.parts_s
    assert sum(cause.seconds for cause in explanation.causes) <= explanation.e2e_s + 1e-6
    assert "@" not in words(explanation), "ids of replicas are not those that clients know"


def computing(replicas: int = 2, **fields: Any) -> tuple[World, Request]:
    """A world in which one request has its first tokens."""
    world = World(3, replicas=replicas, **fields)
    request = replace(request_of(random.Random(1), "q", 0.0), max_tokens=40, end_token_ids=frozenset())
    world.run(0.2, lambda: False)
    world.submit(request)
    world.run(20.0, lambda: len(world.tokens_of("q")) >= 5)
    return world, request


@pytest.mark.parametrize("seed", thinned(range(SCHEDULES), "explained", RUNS // 3))
def test_parts_add_up_whatever_is_cut_or_killed(seed: int) -> None:
    world, _ = run_world(seed, **CHAOS)
    for name in list(world.events):
        if world.ends_of(name):
            (told,) = world.explain(name)
            check_sum(world, told)


@pytest.mark.parametrize("seed", thinned(range(SCHEDULES), "explained split", RUNS // 6))
def test_parts_add_up_where_prompts_are_computed_elsewhere(seed: int) -> None:
    world = run_split(seed, **LOSSES)
    stories = [told for index in range(12) for told in world.explain(f"q{index}")]
    for told in stories:
        check_sum(world, told)
    assert any(" then at " in told.summary for told in stories) and all(not t.parts_s["lost_s"] for t in stories)
    assert sum(told.parts_s["transfer_s"] for told in stories) > 0


def test_a_stream_that_moved_has_the_parts_of_both_replicas() -> None:
    """The connection was cut, but the replica lives and still has the record."""
    world, _ = computing()
    (stream,) = world.fleet._streams.values()
    first = stream.member
    assert first is not None
    world._cut(first.name)
    world.run(40.0, lambda: bool(world.ends_of("q")))
    world.run(world.now + 2.0, lambda: False)
    (told,) = world.explain("q")
    check_sum(world, told)
    assert told.parts_s["lost_s"] == 0 and told.parts_s["resume_s"] >= 0
    assert f"Computed at {first.name}, then at " in told.summary
    assert {cause.text.split(":")[0] for cause in told.causes} >= {"r0", "r1"}
    last = world.fleet.ledger.accounts.find("q")[0].stays[-1]
    (account,) = world.cores[last.member]._streams._ledger.accounts.find("q")
    assert account.num_output_tokens == 40 - last.num_told, "tokens that another replica made are not counted twice"


def test_a_replica_that_has_ended_gives_one_sentence() -> None:
    world, _ = computing()
    (stream,) = world.fleet._streams.values()
    first = stream.member
    assert first is not None
    world._die(first.name, world.cores[first.name])
    world.run(40.0, lambda: bool(world.ends_of("q")))
    (told,) = world.explain("q")
    check_sum(world, told)
    gone = [cause for cause in told.causes if cause.kind is CauseKind.LOST]
    assert [cause.text for cause in gone] == [f"{first.name} has ended since, and its record of this time with it"]
    assert gone[0].seconds == pytest.approx(told.parts_s["lost_s"]) and gone[0].seconds > 0


def test_requests_beside_are_called_by_the_names_that_clients_know() -> None:
    world = World(5, replicas=1)
    world.run(0.2, lambda: False)
    for index in range(6):
        long = replace(request_of(random.Random(index), f"req-{index}/0", world.now), max_tokens=20)
        world.submit(replace(long, group_id=f"req-{index}", prompt_token_ids=tuple(range(40))))
    world.run(60.0, lambda: world.ended == 6)
    told = [world.explain(f"req-{index}")[0] for index in range(6)]
    for each in told:
        check_sum(world, each)
    named = {name for each in told for cause in each.causes for name in cause.who}
    assert named and named <= {f"req-{index}/0" for index in range(6)}


def test_tokens_that_a_replica_read_from_its_disk_are_told_by_the_front() -> None:
    """The replica's ledger hears of the reading before the first step of the request, as from the disk's book."""
    world = World(3, replicas=1)
    world.run(0.2, lambda: False)
    (core,) = world.cores.values()
    ledger = core._streams._ledger
    arrive = ledger.arrive

    def read_first(request: Request) -> None:
        arrive(request)
        ledger.read_back(request.request_id, 8, 0.001)

    ledger.arrive = read_first  # type: ignore[method-assign]
    first = replace(request_of(random.Random(1), "first", 0.0), max_tokens=3, end_token_ids=frozenset())
    for name in ("first", "again"):  # the pages of the second one are cached here, as pages from a disk are
        world.submit(replace(first, request_id=name, group_id=name))
        world.run(world.now + 20.0, lambda name=name: bool(world.ends_of(name)))
    account = world.fleet.ledger.accounts.find("again")[0]
    assert (account.disk.tokens, account.disk.seconds) == (8, 0.001) and account.num_cached_tokens >= 8
    (told,) = world.explain("again")
    check_sum(world, told)
    assert told.num_disk_tokens == 8 and "8 of them read from the disk" in words(told)
    (cause,) = (cause for cause in told.causes if cause.kind is CauseKind.DISK)
    assert "8 tokens of its prompt were read from the disk" in cause.text


def test_nothing_is_told_of_an_unknown_request() -> None:
    world, _ = computing()
    assert world.explain("q") == [], "it still runs"
    assert world.explain("other") == []
