"""An executor that computes nothing: a step takes as long as the cost model says, tokens follow from request and place.

Knows: plans, a StepCost, the virtual clock.
Must not know: policies, kernels, vocabularies.
"""

from __future__ import annotations

from collections.abc import Callable

from twostroke.cost.shape import Segment, StepCost
from twostroke.sim.clock import VirtualClock
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.result import SampledToken, StepResult

OUTPUT_TOKEN_BASE = 1 << 52
"""Invented output tokens begin here, far from those of invented prompts, so that only equal requests share pages."""


def invented_token(sequence: PlannedSequence) -> int:
    """A token that depends on the request's seed and the output position alone."""
    return OUTPUT_TOKEN_BASE + (sequence.request.seed << 20) + sequence.num_output_tokens


def segments_of(plan: Plan) -> tuple[Segment, ...]:
    """What a cost model must know of a plan."""
    return tuple(Segment(each.start, each.num_tokens, each.samples) for each in plan.sequences)


class PredictedExecutor:
    """Satisfies engine.executor.Executor. The clock goes on by the predicted seconds of each plan."""

    def __init__(
        self, cost: StepCost, clock: VirtualClock, next_token: Callable[[PlannedSequence], int] = invented_token
    ) -> None:
        self._cost = cost
        self._clock = clock
        self._next_token = next_token

    def execute(self, plan: Plan) -> StepResult:
        """Let the predicted time pass; one token for each sequence that samples."""
        seconds = self._cost.predict(segments_of(plan)).seconds
        sampled = {
            each.request.request_id: SampledToken(self._next_token(each)) for each in plan.sequences if each.samples
        }
        self._clock.advance(seconds)
        return StepResult(sampled, model_s=seconds)
