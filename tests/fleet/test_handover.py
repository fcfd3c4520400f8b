"""Prompts are computed at one replica and decoded at another, with the tokens and log probabilities of one engine."""

from __future__ import annotations

import operator
import random
from dataclasses import replace
from typing import Any

import pytest

from tests.fleet.invented import PAGE_TOKENS, logprob_of, whole_answer
from tests.fleet.test_failover import CHAOS, MOST, RUNS, SCHEDULES
from tests.fleet.world import World, facts_of, request_of
from tests.tiers import fewer, thinned
from twostroke.distributed.fleet.fleet import ReplicaFleet
from twostroke.distributed.wire.frames import Assignment, Beat, Cancel, PagesAhead, ReplicaLoad, StepNews, WireToken
from twostroke.types.event import TokenEvent
from twostroke.types.request import FinishReason, Request

SPLIT = ("prefill", "decode")
LOSSES = {"lost_pages": 0.2, "flipped_pages": 0.2}


def always(split_s: float, whole_s: float) -> bool:
    """Every prompt that can be is computed at another replica than its stream is decoded."""
    return True


def run_split(seed: int, roles: tuple[str, ...] = SPLIT, count: int = MOST, **rates: Any) -> World:
    """Runs `count` requests. Every answer is compared with that of an engine without faults."""
    world = World(seed, **{"replicas": 4, "roles": roles, "sooner": always, **rates})
    dice = random.Random(seed + 1)
    requests = {f"q{index}": request_of(dice, f"q{index}", 0.0) for index in range(count)}
    for request in requests.values():
        world.at(dice.uniform(0, 1.5), lambda request=request: world.submit(request))  # type: ignore[misc]
    world.run(120.0, lambda: world.ended >= count)
    for name, request in requests.items():
        check_answer(world, name, request)
    for core in world.cores.values():
        core._streams._book._scheduler._cache.check()
    return world


def check_answer(world: World, name: str, request: Request) -> None:
    (end,) = world.ends_of(name)
    if end.reason is FinishReason.ERROR:
        assert end.error is not None and "three replicas" in end.error and world.deaths >= 3
        return
    assert world.tokens_of(name) == whole_answer(request)
    told = [event for event in world.events[name] if isinstance(event, TokenEvent)]
    wanted = request.params.logprobs is not None
    assert [event.logprob for event in told] == [logprob_of(e.token_id) if wanted else None for e in told]


@pytest.mark.parametrize("seed", thinned(range(SCHEDULES), "handover", RUNS))
def test_whatever_is_lost_or_damaged_changes_no_answer(seed: int) -> None:
    run_split(seed, **CHAOS, **LOSSES)


def test_streams_are_handed_over_and_their_pages_are_used() -> None:
    """This shows that the test above does test pages: they come, and the prompts' pages are not computed again."""
    worlds = [run_split(seed) for seed in range(5)]
    assert all(world.fleet.handed_over >= 6 and world.fleet.moved == 0 for world in worlds)
    decoders = [core.load() for world in worlds for name, core in world.cores.items() if name in ("r1", "r3")]
    assert sum(world.pages_kept for world in worlds) > 60
    assert sum(load.hit_tokens for load in decoders) > sum(load.query_tokens for load in decoders) / 2


def test_pages_of_a_long_prompt_come_while_it_is_computed() -> None:
    world = World(3, replicas=2, roles=SPLIT, num_pages=80, sooner=always)
    asked = replace(request_of(random.Random(1), "q", 0.0), prompt_token_ids=tuple(index % 50 for index in range(243)))
    world.run(0.2, lambda: False)
    world.submit(asked)
    world.run(20.0, lambda: bool(world.ends_of("q")))
    check_answer(world, "q", asked)
    assert world.pages_kept == 60 and world.pages_ahead > 45


@pytest.mark.parametrize("seed", range(fewer(20, 2)))
def test_where_a_prediction_decides_no_answer_changes_either(seed: int) -> None:
    run_split(seed, ("prefill", "decode", "both"), sooner=operator.lt, death_rate=0.1, lost_pages=0.2)


@pytest.mark.parametrize("role", SPLIT)
def test_one_role_alone_computes_everything(role: str) -> None:
    world = run_split(4, (role,), death_rate=0.1)
    assert world.fleet.handed_over == 0


def test_a_prompt_that_is_scored_stays_where_it_is() -> None:
    world = World(5, replicas=2, roles=SPLIT)  # type: ignore[arg-type]
    asked = request_of(random.Random(1), "q", 0.0)
    world.run(0.2, lambda: False)
    world.submit(replace(asked, params=replace(asked.params, prompt_logprobs=0)))
    world.run(20.0, lambda: bool(world.ends_of("q")))
    assert world.tokens_of("q") == whole_answer(asked) and world.fleet.handed_over == 0


def test_pages_that_went_to_another_replica_than_the_stream_are_given_up_there() -> None:
    """The replica that should have decoded it drains in the meantime, and must not keep the pages."""
    fleet = ReplicaFleet(PAGE_TOKENS, sooner=always)
    for name, role in (("p", "prefill"), ("d0", "decode"), ("d1", "decode")):
        fleet.joined(facts_of(name, name, role), 0.0, (name, 1))
    fleet.add(replace(request_of(random.Random(1), "q", 0.0), prompt_token_ids=tuple(range(40))))
    (reader, work), (decode_replica, ahead) = fleet.outbox
    assert reader == "p" and isinstance(work, Assignment) and isinstance(ahead, PagesAhead)
    fleet.outbox.clear()
    fleet.heard(decode_replica, Beat(ReplicaLoad(), draining=True), 0.1)
    fleet.heard("p", StepNews(ReplicaLoad(), (WireToken(work.number, 7),)), 0.2)
    sent = list(fleet.outbox)
    (other,) = {"d0", "d1"} - {decode_replica}
    assert (decode_replica, Cancel(ahead.number)) in sent and ("p", Cancel(work.number)) in sent
    name, handed = sent[-1]
    assert name == other and isinstance(handed, Assignment) and handed.ahead == 0 and handed.resumed == (7,)
