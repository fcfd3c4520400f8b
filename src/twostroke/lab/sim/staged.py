"""An executor with stages that computes nothing. A plan passes through the stages in the predicted seconds."""

from __future__ import annotations

from collections import deque

from twostroke.cost.pipeline import StageTimes
from twostroke.lab.sim.clock import VirtualClock
from twostroke.lab.sim.predicted import tokens_of
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class StagedExecutor:
    """Satisfies engine.executor.Executor. A stage begins a plan when it has ended its previous plan and the stage
    before it has ended this one. The clock advances to the end of the last stage."""

    def __init__(self, stages: StageTimes, clock: VirtualClock) -> None:
        self._stages, self._clock = stages, clock
        self._free_s = [0.0] * len(stages)
        self._ends_s: deque[float] = deque()

    def begin(self, plan: Plan) -> None:
        """Computes when a plan that was just made will leave the last stage. PlansInFlight calls this when the plan
        begins."""
        at_s = self._clock()
        for stage, seconds in enumerate(self._stages.seconds(plan.sequences)):
            at_s = self._free_s[stage] = max(at_s, self._free_s[stage]) + seconds
        self._ends_s.append(at_s)

    def execute(self, plan: Plan) -> StepResult:
        """Lets time pass until the last stage has ended the plan that was begun first."""
        sampled = {each.request.request_id: tokens_of(each) for each in plan.sequences if each.samples}
        began_s = self._clock()
        self._clock.advance_to(self._ends_s.popleft())
        return StepResult(sampled, model_s=self._clock() - began_s)
