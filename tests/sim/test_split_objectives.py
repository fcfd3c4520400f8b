"""Objectives in split pools: replicas that read prompts keep the TTFT, those that decode keep the ITL, and nothing is
lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.machines import setup
from tests.sim.test_fleet import told
from tests.tiers import fewer
from twostroke.lab.sim.fleet.fleet import Fleet, FleetOutcome, FleetPlan
from twostroke.lab.sim.fleet.routing import LeastLoaded
from twostroke.lab.sim.replica import REFUSED
from twostroke.lab.workload.synthetic import NAMED, Load
from twostroke.types.objectives import NO_OBJECTIVES, LatencyObjectives

TTFT_S, ITL_S = 0.3, 0.004
BOTH = LatencyObjectives(TTFT_S, ITL_S)


def served(
    promised: LatencyObjectives, rate_per_s: float, seed: int = 3, count: int = 120, skips: bool = True
) -> FleetOutcome:
    how = replace(setup(400, 64, 16), promised=promised)
    load = NAMED["overload"](Load(rate_per_s, count, seed, 0.3))
    return Fleet(FleetPlan(how, 2, 2), LeastLoaded(), skips=skips).run(load)


def late_ttfts(outcome: FleetOutcome) -> int:
    return sum(not seen.error and seen.times_s[0] - seen.asked.arrival_s > TTFT_S for seen in outcome.seen)


def gap_share(outcome: FleetOutcome) -> float:
    """The share of gaps within the objective, among the gaps between tokens that a decoder made."""
    gaps = [
        later - sooner
        for seen in outcome.seen
        for sooner, later in zip(seen.times_s[1:], seen.times_s[2:], strict=False)
    ]
    return sum(gap <= ITL_S for gap in gaps) / len(gaps)


def test_each_pool_keeps_its_part() -> None:
    plan = FleetPlan(replace(setup(), promised=BOTH), 2, 2)
    assert plan.reader_setup.promised == LatencyObjectives(ttft_s=TTFT_S)
    assert plan.decoder_setup.promised == LatencyObjectives(itl_s=ITL_S)
    assert FleetPlan(plan.setup, 2).reader_setup == plan.setup


def test_too_many_prompts_are_refused_by_those_that_read_and_the_rest_begins_in_time() -> None:
    freely, gated = served(NO_OBJECTIVES, 240.0), served(LatencyObjectives(TTFT_S), 240.0)
    refused = [seen for seen in gated.seen if seen.error]
    assert not [seen for seen in freely.seen if seen.error] and late_ttfts(freely) > 60
    assert len(refused) > 20 and {seen.error for seen in refused} == {REFUSED}
    assert all(not seen.times_s and seen.where[0].startswith("r") and len(seen.where) == 1 for seen in refused)
    assert late_ttfts(gated) < late_ttfts(freely) / 2


def test_those_that_decode_take_no_more_streams_than_keep_the_gaps_and_refuse_no_request() -> None:
    freely, kept = served(NO_OBJECTIVES, 60.0), served(LatencyObjectives(itl_s=ITL_S), 60.0)
    assert gap_share(freely) < 0.7 and gap_share(kept) > 0.9
    assert not [seen for seen in kept.seen if seen.error]
    firsts = [[seen.times_s[0] for seen in outcome.seen] for outcome in (freely, kept)]
    assert firsts[0] == firsts[1], "prefill goes by arrival, as without objectives"


@settings(max_examples=fewer(10, quick=3), deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([20.0, 100.0, 400.0]), st.sampled_from([BOTH, LatencyObjectives(0.1)]))
def test_nothing_is_lost_and_skipping_changes_nothing(seed: int, rate: float, promised: LatencyObjectives) -> None:
    outcome = served(promised, rate, seed, count=50)
    assert told(outcome) == told(served(promised, rate, seed, count=50, skips=False))
    for seen in outcome.seen:
        assert len(seen.times_s) == (0 if seen.error else seen.asked.output_tokens)
    for member in outcome.members:
        gauges = member.replica.scheduler.gauges()
        assert (gauges.running, gauges.waiting, gauges.pages_used, member.requests) == (0, 0, 0, 0)
        member.replica.cache.check()


@pytest.mark.parametrize("promised", [BOTH, LatencyObjectives(TTFT_S), LatencyObjectives(itl_s=ITL_S)])
def test_a_calm_fleet_answers_every_request(promised: LatencyObjectives) -> None:
    outcome = served(promised, 5.0)
    assert not [seen for seen in outcome.seen if seen.error] and late_ttfts(outcome) <= 2
