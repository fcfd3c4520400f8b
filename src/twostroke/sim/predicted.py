"""An executor that computes nothing: a step takes as long as the cost model says, tokens follow from request and place.

Knows: plans, a SteadyCost, the virtual clock.
Must not know: policies, kernels, vocabularies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twostroke.cost.shape import SteadyCost, StepPrediction
from twostroke.cost.step_history import device_seconds
from twostroke.sim.clock import VirtualClock
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.request import Request
from twostroke.types.result import SampledToken, StepResult

OUTPUT_TOKEN_BASE = 1 << 52
"""Invented output tokens begin here, far from those of invented prompts, so that only equal requests share pages."""


def invented_tokens(request: Request, first: int, count: int) -> range:
    """Output tokens [first, first + count): they depend on the request's seed and the output position alone."""
    start = OUTPUT_TOKEN_BASE + (request.seed << 20) + first
    return range(start, start + count)


def invented_token(sequence: PlannedSequence) -> int:
    """The one that follows the known tokens."""
    request = sequence.request
    return OUTPUT_TOKEN_BASE + (request.seed << 20) + len(sequence.known_token_ids) - len(request.prompt_token_ids)


class PredictedExecutor:
    """Satisfies engine.executor.Executor. The clock goes on by the predicted seconds of each plan."""

    def __init__(
        self, cost: SteadyCost, clock: VirtualClock, next_token: Callable[[PlannedSequence], int] = invented_token
    ) -> None:
        self._cost = cost
        self._clock = clock
        self._next_token = next_token

    def execute(self, plan: Plan) -> StepResult:
        """Let the predicted time pass; one token for each sequence that samples."""
        return self._result(plan.sequences, self._cost.predict(plan.sequences))

    def execute_beside(self, starts: Sequence[int], plan: Plan | None) -> StepResult:
        """`execute` of a plan that leaves out streams, each of which computes the position at starts: bit for bit the
        same time, and the tokens of those that are in the plan."""
        planned = plan.sequences if plan is not None else ()
        return self._result(planned, self._cost.predict_beside(starts, planned))

    def _result(self, planned: Sequence[PlannedSequence], prediction: StepPrediction) -> StepResult:
        sampled = {each.request.request_id: SampledToken(self._next_token(each)) for each in planned if each.samples}
        self._clock.advance(prediction.seconds)
        return StepResult(sampled, model_s=device_seconds(prediction))
