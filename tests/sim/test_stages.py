"""A pipeline in the simulator: the production scheduler with a plan in flight for each stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cost.machines import SPEC, calibration
from tests.sim.machines import setup
from tests.sim.test_steady import run_until
from twostroke.cost.exchange import LinkRates
from twostroke.cost.pipeline import RoundCost, StageTimes, sharing_pays
from twostroke.cost.shape import Bound, Part, PartPrediction, Segment, StepPrediction
from twostroke.cost.work import Work
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.limits.plan_share import PredictedShare
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.lab.sim.observe import Notebook
from twostroke.lab.sim.replica import Replica
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.models.common.divided import ParallelPlan, cost_of, stage_costs
from twostroke.models.common.registry import read_model
from twostroke.ops.passes.division import PIPELINE, TENSOR, Division
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import KVKind

LINK = LinkRates(5e-6, 2e9, "a test")


class StageCost:
    """A stage that takes a millisecond for a plan and a millisecond for each row."""

    row_s = 0.001

    def predict(self, segments: list[Part]) -> StepPrediction:
        """See StepCost."""
        rows = sum(each.num_tokens for each in segments)
        return StepPrediction((PartPrediction("weights", 0.001 + self.row_s * rows, Work(), Bound.MEMORY),))


def times(stages: int, prompts: list[int], output: int) -> dict[str, list[float]]:
    """The times at which requests that come together get their tokens from a pipeline of such stages. With 0 plans in
    flight, stages take turns."""
    plain = setup(step_tokens=16)
    limits = SchedulerLimits(16, 8, plans_in_flight=max(1, stages))
    made = replace(plain, limits=limits, cost=WholeCost(), stages=(StageCost(),) * stages)
    notes = Notebook()
    replica = Replica("one", made, notes, skips=False)
    for index, length in enumerate(prompts):
        name = str(index)
        notes.open(name, WorkloadRequest(0.0, length, output, "", 0))
        tokens = range(1000 * index, 1000 * index + length)
        replica.submit(Request(name, name, tokens, SamplingParams(), index, output, frozenset(), 0.0))
    run_until(replica, 1e9)
    return {name: seen.times_s for name, seen in notes.seen.items()}


class WholeCost(StageCost):
    """The cost of two stages, one after the other."""

    def predict(self, segments: list[Part]) -> StepPrediction:
        """See StepCost."""
        (part,) = super().predict(segments).parts
        return StepPrediction((replace(part, seconds=2 * part.seconds),))


def test_chunks_of_one_prompt_follow_one_another_through_the_stages() -> None:
    (alone,) = times(2, [64], 3).values()
    assert alone[0] == pytest.approx(0.017 * 5), "four chunks of 17 ms, and the last one's second stage"
    assert alone[1] - alone[0] == pytest.approx(0.004), "one stream has no more speed than stages in turn"
    (in_turn,) = times(0, [64], 3).values()
    assert in_turn[0] == pytest.approx(0.017 * 8)


def test_streams_are_shared_out_among_plans() -> None:
    pipelined, in_turn = times(2, [1, 1, 1, 1], 40), times(0, [1, 1, 1, 1], 40)
    gaps = [seen[20] - seen[19] for seen in pipelined.values()]
    assert gaps == pytest.approx([0.006] * 4), "two plans of two streams go round, 3 ms in each stage"
    assert [seen[20] - seen[19] for seen in in_turn.values()] == pytest.approx([0.010] * 4)


def test_streams_stay_in_one_plan_where_sharing_them_out_would_gain_little() -> None:
    cost = StageCost()
    cost.row_s = 0.00001  # nearly all of a plan's time does not depend on its rows
    streams = [Segment.decode(20)] * 4
    assert not sharing_pays(cost, streams, 2) and sharing_pays(StageCost(), streams, 2)
    assert not sharing_pays(StageCost(), streams[:1], 2)
    share = PredictedShare(cost, 2)
    decoding = [Sequence(Request(str(i), "", (1, 2), SamplingParams(), 0, 9, frozenset(), 0.0), i) for i in range(4)]
    assert share(decoding) == 4 and PredictedShare(StageCost(), 2)(decoding) == 2


def test_a_round_is_what_the_simulator_finds() -> None:
    stages = StageTimes((StageCost(),) * 2)
    streams = [Segment.decode(20)] * 4
    assert RoundCost(WholeCost(), stages).predict(streams).seconds == pytest.approx(0.006)
    assert RoundCost(WholeCost(), stages).predict(streams[:1]).seconds == pytest.approx(0.004)


def test_stages_cost_together_what_a_step_costs() -> None:
    spec, machine = read_model(SPEC), calibration()
    divided = ParallelPlan(Division(PIPELINE, 3), LINK)
    costs = stage_costs(spec, "int8", KVKind.BF16, machine, divided)
    assert not stage_costs(spec, "int8", KVKind.BF16, machine, ParallelPlan(Division(TENSOR, 2), LINK))
    chunk = [Segment.prefill(0, 30, True), Segment.decode(40)]
    whole = cost_of(spec, "int8", KVKind.BF16, machine, divided).predict(chunk).seconds
    assert sum(StageTimes(costs).seconds(chunk)) == pytest.approx(whole, rel=0.05)
