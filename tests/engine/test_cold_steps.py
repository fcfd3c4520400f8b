"""Steps during which memory is made ready are marked, and no estimate learns from them."""

from __future__ import annotations

from tests.scheduler.fakes import LineCost, request
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cold_steps import ColdSteps
from twostroke.engine.core import EngineCore
from twostroke.engine.scheduler.estimates.cost_correction import CostCorrection
from twostroke.engine.scheduler.estimates.step_time import StepTime
from twostroke.engine.scheduler.limits.gap_limiter import GapLimiter, GapRule
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.policy import ArrivalPolicy
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.lab.sim.clock import VirtualClock
from twostroke.types.plan import Plan
from twostroke.types.result import SampledToken, StepResult


class Backing:
    """An executor that makes pages ready during some steps, which take ten times as long."""

    def __init__(self, clock: VirtualClock, cold_steps: int) -> None:
        self._clock, self._cold_steps, self.pages = clock, cold_steps, 0

    def execute(self, plan: Plan) -> StepResult:
        cold = self.pages < self._cold_steps
        self.pages += cold
        self._clock.advance(0.5 if cold else 0.05)
        return StepResult({each.request.request_id: (SampledToken(1),) for each in plan.sequences if each.samples})


def test_cold_steps_are_marked_until_everything_is_ready() -> None:
    clock = VirtualClock()
    backing = Backing(clock, 3)
    executor = ColdSteps(backing, lambda: backing.pages)
    plan = Plan(1, (), (), None)
    assert [executor.execute(plan).cold for _ in range(5)] == [True, True, True, False, False]


def test_the_first_step_is_cold_whatever_was_ready_before() -> None:
    executor = ColdSteps(Backing(VirtualClock(), 0), lambda: 7)
    assert [executor.execute(Plan(1, (), (), None)).cold for _ in range(2)] == [True, False]


def test_cold_steps_teach_nothing() -> None:
    clock, cost = VirtualClock(), LineCost(step_s=0.05, row_s=0.0, stream_s=0.0)
    times = StepTime(cost, CostCorrection())
    policy = ArrivalPolicy(times, (GapLimiter(times, 4, GapRule()),))
    scheduler = Scheduler(CacheManager(100, 4), SchedulerLimits(), policy)
    backing = Backing(clock, 6)
    core = EngineCore(scheduler, ColdSteps(backing, lambda: backing.pages))
    scheduler.add(request(1, 8, 12))
    while scheduler.has_work:
        core.step(clock)
    from twostroke.cost.shape import Segment

    assert abs(times.high_s([Segment.decode(8)]) - 0.05) < 1e-9
