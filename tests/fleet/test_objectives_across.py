"""Objectives across replicas: each replica promises for itself, and a request goes on to one that can promise."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from tests.fleet.invented import whole_answer
from tests.fleet.test_failover import CHAOS, run_world
from tests.fleet.world import World, request_of
from twostroke.cost.explain.explanation import CauseKind
from twostroke.cost.history.stay import ReplicaStay, StayEnd
from twostroke.distributed.cluster.arithmetic import difference
from twostroke.distributed.fleet.router import FleetMember, LeastSeconds, Placing
from twostroke.distributed.wire.frames import ReplicaLoad
from twostroke.server.gate.fleet_forecast import FleetForecast
from twostroke.types.event import TokenEvent
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.request import FinishReason, Request

TTFT = LatencyObjectives(ttft_s=0.6)


class FirstOfAll(LeastSeconds):
    """A router that is always wrong. It prefers the replica whose name comes first, however many requests wait
    there."""

    def rank(self, asked: Placing, members: Sequence[FleetMember]) -> FleetMember:
        return min(members, key=lambda member: member.name)


def prompts(count: int, now: float, output: int = 2) -> list[Request]:
    """Each request has its own prompt, which takes two steps, and a fixed number of tokens."""
    made = [request_of(random.Random(index), f"q{index}", now) for index in range(count)]
    return [
        replace(
            each,
            prompt_token_ids=tuple((7 * place + number) % 50 for place in range(30)),
            max_tokens=output,
            end_token_ids=frozenset(),
            seed=number,
        )
        for number, each in enumerate(made)
    ]


def crowded(count: int, replicas: int = 2) -> tuple[World, list[Request]]:
    """All requests come at one moment to a front whose router sends all of them to r0."""
    world = World(3, replicas=replicas, objectives=TTFT, router=FirstOfAll(), num_pages=400)
    world.run(0.3, lambda: False)
    requests = prompts(count, world.now)
    for request in requests:
        world.submit(request)
    world.run(60.0, lambda: world.ended == count)
    return world, requests


def refused_in(world: World, requests: list[Request]) -> list[Request]:
    return [each for each in requests if world.ends_of(each.request_id)[0].reason is FinishReason.ERROR]


def stays_of(world: World, request: Request) -> tuple[ReplicaStay, ...]:
    (account,) = world.fleet.ledger.accounts.find(request.request_id)
    return account.stays


def ttft_s(world: World, request: Request) -> float:
    first = next(event for event in world.events[request.request_id] if isinstance(event, TokenEvent))
    return first.at_s - request.arrival_s


def test_what_one_replica_cannot_promise_another_one_does() -> None:
    """r0 alone would refuse some of them; the front's router is wrong on purpose."""
    alone, own = crowded(16, replicas=1)
    assert refused_in(alone, own), "the test is about nothing where one replica could serve all"
    world, requests = crowded(16)
    assert refused_in(world, requests) == []
    moved = [each for each in requests if len(stays_of(world, each)) > 1]
    assert moved
    for each in moved:
        first, last = stays_of(world, each)[:2]
        assert (first.member, first.end, last.member) == ("r0", StayEnd.REFUSED, "r1")
    for each in requests:
        assert world.tokens_of(each.request_id) == whole_answer(each)
        assert ttft_s(world, each) < 1.5 * 0.6, "steps of this world take up to twice what is predicted"


def test_where_all_refuse_retry_after_is_true() -> None:
    world, requests = crowded(80)
    refused = refused_in(world, requests)
    assert 0 < len(refused) < 80
    for each in refused:
        (end,) = world.ends_of(each.request_id)
        assert end.retry_after_s is not None and end.error is not None and "could not be answered in time" in end.error
        asked = {stay.member for stay in stays_of(world, each)}
        assert asked == {"r0", "r1"}, "no request is refused before all replicas were asked"
        assert world.tokens_of(each.request_id) == []
    end = max((world.ends_of(each.request_id)[0] for each in refused), key=lambda each: each.at_s)
    world.run(end.at_s + (end.retry_after_s or 0.0), lambda: False)
    again = replace(prompts(1, world.now)[0], request_id="again", group_id="again")
    world.submit(again)
    world.run(90.0, lambda: bool(world.ends_of("again")))
    assert world.tokens_of("again") == whole_answer(again) and ttft_s(world, again) < 1.5 * 0.6


def test_a_refusal_is_explained() -> None:
    world, requests = crowded(80)
    (told,) = world.explain(refused_in(world, requests)[0].request_id)
    assert sum(told.parts_s.values()) == pytest.approx(told.e2e_s)
    assert {cause.text for cause in told.causes if cause.kind is CauseKind.TRANSFER} >= {"r0 refused it"}


def test_a_stream_that_lost_its_replica_is_not_refused_at_a_crowded_one() -> None:
    world = World(3, replicas=2, objectives=TTFT, router=FirstOfAll(), num_pages=400)
    world.run(0.3, lambda: False)
    (stream,) = prompts(1, world.now, output=40)
    stream = replace(stream, request_id="stream", group_id="stream")
    world.submit(stream)
    world.run(20.0, lambda: len(world.tokens_of("stream")) >= 3)
    for each in prompts(60, world.now):
        world.submit(each)
    world.run(world.now + 0.1, lambda: False)
    world._die("r0", world.cores["r0"])
    world.run(60.0, lambda: bool(world.ends_of("stream")))
    assert world.tokens_of("stream") == whole_answer(stream)


@pytest.mark.parametrize("seed", range(6))
def test_promises_that_can_be_kept_change_nothing_of_survival(seed: int) -> None:
    world, wrong = run_world(seed, objectives=LatencyObjectives(ttft_s=100.0), **CHAOS)  # type: ignore[arg-type]
    assert world.deaths >= 3 or wrong == []


def test_replicas_of_one_front_promise_the_same() -> None:
    from tests.cluster.test_links import FACTS

    other = structs.replace(FACTS, objectives=TTFT)
    assert difference(FACTS, other) == "--ttft (None and 0.6)" and difference(other, other) == ""


def test_the_queue_of_a_front_is_as_long_as_its_replicas_say() -> None:
    members = [
        FleetMember(f"r{index}", "i", 4, ReplicaLoad(running=4, token_s=0.001, step_s=0.02)) for index in range(2)
    ]
    forecast = FleetForecast(lambda: members)
    assert forecast.wait_s(0, 1000) == pytest.approx(0.5), "two replicas compute 2,000 prompt tokens a second"
    assert forecast.wait_s(2, 0) == pytest.approx(2 * 128 / 8 * 0.02), "of 8 streams of 128 tokens one ends in 16 steps"
    members[0].load = ReplicaLoad(running=1, token_s=0.001, step_s=0.02)
    assert forecast.wait_s(3, 0) == 0.0, "three places are free"
    members.clear()
    assert forecast.wait_s(1, 1) == 2.0
