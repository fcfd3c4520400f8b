"""An executor that computes nothing. A step takes the predicted time, and each token follows from its request and its
position."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twostroke.cost.history.step_history import device_seconds
from twostroke.cost.shape import SteadyCost
from twostroke.lab.sim.clock import VirtualClock
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.request import Request
from twostroke.types.result import SampledToken, StepResult

NextToken = Callable[[PlannedSequence, int], int]
"""Takes (planned, place) and returns the token that follows the known tokens and `place` draft tokens."""

OUTPUT_TOKEN_BASE = 1 << 52
"""The first of the invented output tokens. It is far from those of invented prompts, so that only equal requests share
pages."""


def invented_tokens(request: Request, first: int, count: int) -> range:
    """Returns output tokens [first, first + count). They depend on the request's seed and the output position alone."""
    start = OUTPUT_TOKEN_BASE + (request.seed << 20) + first
    return range(start, start + count)


def invented_token(sequence: PlannedSequence, place: int) -> int:
    """Returns the token that follows the known tokens and `place` draft tokens."""
    return OUTPUT_TOKEN_BASE + (sequence.request.seed << 20) + sequence.num_output_tokens + place


def tokens_of(planned: PlannedSequence, next_token: NextToken = invented_token) -> tuple[SampledToken, ...]:
    """Returns the tokens of a sequence that samples: the draft tokens that are right, and the token after them."""
    found = [next_token(planned, 0)]
    for place, guess in enumerate(planned.draft_token_ids, 1):
        if found[-1] != guess:
            break
        found.append(next_token(planned, place))
    return tuple(map(SampledToken, found))


class PredictedExecutor:
    """Satisfies engine.executor.Executor. The clock advances by the predicted seconds of each plan.

    beside: returns the positions of the sequences that decode in the same step without being in the plan. They add to
    the step's time, and the result has no tokens for them.
    """

    def __init__(
        self,
        cost: SteadyCost,
        clock: VirtualClock,
        next_token: NextToken = invented_token,
        beside: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        self._cost = cost
        self._clock = clock
        self._next_token = next_token
        self._beside = beside

    def execute(self, plan: Plan) -> StepResult:
        """Lets the predicted time pass. Each sequence that samples gets the draft tokens that are right, and the token
        after them."""
        planned, starts = plan.sequences, self._beside()
        prediction = self._cost.predict_beside(starts, planned) if starts else self._cost.predict(planned)
        sampled = {each.request.request_id: tokens_of(each, self._next_token) for each in planned if each.samples}
        self._clock.advance(prediction.seconds)
        return StepResult(sampled, model_s=device_seconds(prediction))
