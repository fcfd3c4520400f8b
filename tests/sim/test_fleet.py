"""Fleets, tested by their properties: nothing is lost, nothing is random, and policies do what they promise."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.machines import setup
from tests.tiers import examples
from twostroke.lab.sim.fleet.autoscale import Autoscale
from twostroke.lab.sim.fleet.fleet import REFUSED, Fleet, FleetOutcome, FleetPlan
from twostroke.lab.sim.fleet.routers import ROUTERS, named_router
from twostroke.lab.sim.fleet.routing import LeastLoaded, Member, PrefixAffinity, RoundRobin, State
from twostroke.lab.sim.fleet.transfer import Link
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.synthetic import NAMED, Load
from twostroke.types.errors import ConfigError


def told(outcome: FleetOutcome) -> dict[str, Any]:
    """Everything that can be compared."""
    return {
        "seen": [asdict(each) for each in outcome.seen],
        "members": [
            (
                each.replica.name,
                each.replica.steps,
                each.served,
                each.from_s,
                each.to_s,
                each.replica.scheduler.gauges(),
            )
            for each in outcome.members
        ],
        "traffic": asdict(outcome.traffic),
        "scaling": outcome.scaling,
        "recomputed": outcome.recomputed_tokens,
        "end_s": outcome.end_s,
    }


def random_plan(dice: random.Random) -> FleetPlan:
    how = setup(dice.choice([60, 120, 400]), dice.choice([16, 64]), dice.choice([2, 8]))
    kind = dice.choice(["whole", "split", "scaled"])
    if kind == "split":
        link = Link(dice.choice([1e6, 1e9]), 1e-4)
        return FleetPlan(how, dice.randint(1, 3), dice.randint(1, 3), link)
    if kind == "scaled":
        return FleetPlan(how, autoscale=Autoscale(1, 5, dice.choice([1.0, 4.0]), 0.05, 0.1, dice.choice([0.1, 0.5])))
    return FleetPlan(how, dice.randint(1, 5))


def random_load(dice: random.Random) -> list[WorkloadRequest]:
    name = dice.choice(sorted(NAMED))
    found = NAMED[name](Load(dice.choice([5.0, 50.0]), dice.randint(1, 60), dice.randrange(1000), 0.3))
    if dice.random() < 0.2:
        found.append(replace(found[-1], prompt_tokens=5000))
    return found


@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_request_is_served_once_and_skipping_changes_nothing(seed: int) -> None:
    dice = random.Random(seed)
    plan, load, router = random_plan(dice), random_load(dice), dice.choice(sorted(ROUTERS))
    users = dice.choice([None, None, 1, 4])
    outcome = Fleet(plan, named_router(router)).run(load, users)
    again = Fleet(plan, named_router(router), skips=False).run(load, users)
    assert told(outcome) == told(again)
    assert len(outcome.seen) == len(load)
    for seen, asked in zip(outcome.seen, load, strict=True):
        if asked.prompt_tokens + asked.output_tokens > plan.setup.most_tokens:
            assert (seen.error, seen.times_s) == (REFUSED, [])
            continue
        assert seen.error == "" and len(seen.times_s) == asked.output_tokens
        assert seen.times_s == sorted(seen.times_s) and seen.times_s[0] > seen.asked.arrival_s
        assert seen.times_s[-1] == seen.ended_s
        assert len(seen.where) == (2 if plan.decoders and asked.output_tokens > 1 else 1)
    for member in outcome.members:
        gauges = member.replica.scheduler.gauges()
        assert (gauges.running, gauges.waiting, gauges.pages_used, member.requests) == (0, 0, 0, 0)
        assert not member.replica.outstanding
        member.replica.cache.check()


def chat(count: int, gap_s: float, prompt: int = 60, output: int = 20) -> list[WorkloadRequest]:
    return [WorkloadRequest(number * gap_s, prompt, output) for number in range(count)]


def test_round_robin_gives_each_replica_as_many() -> None:
    outcome = Fleet(FleetPlan(setup(), 3), RoundRobin()).run(chat(30, 0.001))
    assert [member.served for member in outcome.members] == [10, 10, 10]
    assert [seen.where[0] for seen in outcome.seen[:4]] == ["r0", "r1", "r2", "r0"]


def test_least_loaded_leaves_a_busy_replica_alone() -> None:
    load = [WorkloadRequest(0.0, 100, 1500), *chat(10, 0.02, 20, 2)]
    load = [load[0], *(replace(each, arrival_s=each.arrival_s + 0.05) for each in load[1:])]
    outcome = Fleet(FleetPlan(setup(), 2), LeastLoaded()).run(load)
    assert Counter(seen.where[0] for seen in outcome.seen) == {"r0": 1, "r1": 10}


def test_more_replicas_make_requests_wait_no_longer_on_average() -> None:
    load = NAMED["steady-chat"](Load(60.0, 150, 3, 0.3))
    ends = []
    for replicas in (1, 2, 4):
        outcome = Fleet(FleetPlan(setup(), replicas), LeastLoaded()).run(load)
        ends.append(sum(seen.times_s[0] - seen.asked.arrival_s for seen in outcome.seen))
    assert ends == sorted(ends, reverse=True)


def test_prefix_affinity_finds_more_prefixes_and_does_not_overload() -> None:
    load = NAMED["shared-prefix-agents"](Load(20.0, 200, 1, 0.2))
    shares = {}
    for name in ROUTERS:
        outcome = Fleet(FleetPlan(setup(num_pages=800), 4), named_router(name)).run(load)
        shares[name] = sum(seen.cached_tokens for seen in outcome.seen)
    assert shares["prefix-affinity"] > 1.1 * max(shares["round-robin"], shares["least-loaded"])
    assert shares["predicted"] > 1.1 * max(shares["round-robin"], shares["least-loaded"])
    same = [replace(each, block_ids=tuple(range(8)), block_tokens=16) for each in chat(40, 0.0, 130, 50)]
    for name in ("prefix-affinity", "predicted"):
        outcome = Fleet(FleetPlan(setup(), 4), named_router(name)).run(same)
        assert all(member.served >= 4 for member in outcome.members), "one prefix does not go to one replica whatever"


def test_a_prefix_that_a_router_remembers_is_forgotten_when_there_are_too_many() -> None:
    router = PrefixAffinity(remembered=4)
    plan = FleetPlan(setup(), 2)
    load = [
        replace(each, block_ids=(number, number + 100), block_tokens=16) for number, each in enumerate(chat(9, 0.2))
    ]
    Fleet(plan, router).run(load)
    assert len(router._places) == 4


def test_a_slow_link_delays_the_second_token_alone() -> None:
    load = chat(5, 1.0, 100, 10)
    runs = [Fleet(FleetPlan(setup(), 1, 1, Link(rate)), RoundRobin()).run(load) for rate in (1e12, 1e5)]
    fast, slow = (outcome.seen for outcome in runs)
    assert [seen.times_s[0] for seen in fast] == [seen.times_s[0] for seen in slow]
    full_pages = 100 // 16 * 16
    seconds = full_pages * runs[0].readers[0].replica.setup.kv_token_bytes / 1e5
    for quick, late in zip(fast, slow, strict=True):
        assert late.times_s[1] - quick.times_s[1] == pytest.approx(seconds, rel=1e-3)
    assert runs[1].traffic.bytes == 5 * full_pages * runs[0].readers[0].replica.setup.kv_token_bytes
    assert runs[1].recomputed_tokens == 0


def test_transfers_over_one_link_follow_each_other() -> None:
    load = chat(4, 0.0, 64, 5)
    outcome = Fleet(FleetPlan(setup(step_tokens=512), 1, 2, Link(1e5)), RoundRobin()).run(load)
    assert outcome.traffic.wait_s > outcome.traffic.on_the_way_s


def test_what_the_receiver_has_does_not_travel() -> None:
    load = [replace(each, block_ids=(1, 2, 3), block_tokens=16) for each in chat(3, 1.0, 60, 5)]
    outcome = Fleet(FleetPlan(setup(), 1, 1), RoundRobin()).run(load)
    assert outcome.traffic.bytes == 48 * outcome.readers[0].replica.setup.kv_token_bytes


def test_decoders_compute_no_prompts() -> None:
    load = chat(20, 0.01, 100, 10)
    outcome = Fleet(FleetPlan(setup(), 2, 2), RoundRobin()).run(load)
    for member in outcome.decoders:
        gauges = member.replica.scheduler.gauges()
        behind_last_page = 101 % 16
        assert gauges.prefix_query_tokens - gauges.prefix_hit_tokens == member.served * behind_last_page


def test_autoscaling_follows_the_load_up_and_down() -> None:
    rule = Autoscale(1, 6, 4.0, every_s=0.1, start_s=0.3, patience_s=0.5)
    load = [*chat(100, 0.004, 60, 100), *(replace(each, arrival_s=each.arrival_s + 5) for each in chat(20, 0.5, 20, 5))]
    outcome = Fleet(FleetPlan(setup(), autoscale=rule), LeastLoaded()).run(load)
    counts = [count for _, count in outcome.scaling]
    assert max(counts) > 3 and counts[-1] == 1 and min(counts) >= 1 and max(counts) <= 6
    first = next(at_s for at_s, count in outcome.scaling if count > 1)
    begun = [seen.asked.arrival_s for seen in outcome.seen if seen.where[0] != "r0"]
    assert min(begun) >= first + rule.start_s, "a replica that starts takes no requests"
    paid = sum(
        (later_s - at_s) * count
        for (at_s, count), (later_s, _) in zip(outcome.scaling, [*outcome.scaling[1:], (outcome.end_s, 0)], strict=True)
    )
    assert outcome.replica_s == pytest.approx(paid)
    assert all(member.state in (State.READY, State.ENDED) for member in outcome.members)


class Counting:
    """A router that records how many replicas it could choose from."""

    looks_inside = False

    def __init__(self) -> None:
        self.ready: list[int] = []

    def choose(self, asked: WorkloadRequest, members: Sequence[Member]) -> Member:
        self.ready.append(len(members))
        assert all(member.state is State.READY for member in members)
        return LeastLoaded().choose(asked, members)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(0, 4), st.sampled_from([0.0, 0.05, 2.0]))
def test_a_scaled_fleet_keeps_its_bounds_and_loses_no_request(seed: int, low: int, more: int, start_s: float) -> None:
    dice = random.Random(seed)
    rule = Autoscale(low, low + more, dice.choice([0.5, 2.0, 8.0]), 0.05, start_s, dice.choice([0.0, 0.1, 1.0]))
    load = [*chat(dice.randint(1, 60), dice.choice([0.001, 0.02])), *chat(dice.randint(1, 10), 0.5, 20, 5)]
    load = [replace(each, arrival_s=each.arrival_s + dice.choice([0.0, 3.0])) for each in load]
    router = Counting()
    outcome = Fleet(FleetPlan(setup(), autoscale=rule), router).run(sorted(load, key=lambda each: each.arrival_s))
    assert low <= min(router.ready) and max(router.ready) <= low + more
    assert min(count for _, count in outcome.scaling) >= low
    for seen in outcome.seen:
        assert seen.error == "" and len(seen.times_s) == seen.asked.output_tokens and len(seen.where) == 1
    for member in outcome.members:
        assert member.state is not State.DRAINING and member.requests == 0 and not member.replica.outstanding
        if member.to_s is not None:
            served = [seen.ended_s or 0.0 for seen in outcome.seen if seen.where == [member.replica.name]]
            assert max(served, default=0.0) <= member.to_s, "it is not ended before its last request"


def test_a_closed_loop_keeps_as_many_requests_under_way() -> None:
    outcome = Fleet(FleetPlan(setup(), 2), LeastLoaded()).run(chat(40, 0.0, 30, 10), users=3)
    starts = sorted(seen.asked.arrival_s for seen in outcome.seen)
    ends = sorted(seen.ended_s or 0.0 for seen in outcome.seen)
    assert starts[:3] == [0.0, 0.0, 0.0] and starts[3:] == ends[:-3]


def test_split_pools_and_autoscaling_are_refused_together() -> None:
    with pytest.raises(ConfigError, match="Split pools"):
        FleetPlan(setup(), 1, 1, autoscale=Autoscale(1, 2, 4.0))


def test_an_unknown_policy_names_the_nearest() -> None:
    with pytest.raises(ConfigError) as raised:
        named_router("prefix")
    assert "prefix-affinity" in raised.value.fix
