"""Predicts steps of a pipeline of stages: the seconds of each stage for a plan (one batch), and the seconds of a round,
in which each stream gets one token."""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.cost.shape import Part, PartPrediction, StepCost, StepPrediction
from twostroke.types.plan import Role

WORTH_SHARING = 1.2
"""In a pipeline, the decoding sequences are divided among several plans where each then waits this many times less for
its next token. Each plan reads all weights, so a smaller gain is not worth the processor time and the bandwidth."""


def sharing_pays(cost: StepCost, streams: Sequence[Part], plans: int) -> bool:
    """Returns True when a pipeline should divide these decoding sequences among `plans` plans, one for each stage.

    In one plan, each sequence waits for its next token until all of them have gone through all stages. With several
    plans, the stages work at the same time, so each sequence waits only as long as one smaller plan takes. cost:
    predicts a step through all stages.
    """
    share = streams[: -(-len(streams) // plans)]
    if len(share) == len(streams):
        return False
    return cost.predict(streams).seconds >= WORTH_SHARING * cost.predict(share).seconds


class StageTimes:
    """Predicts how long each stage of a pipeline takes for a plan. costs: the cost of each stage, from first to last,
    including the transfer of rows to the next stage. The last stage schedules and samples."""

    def __init__(self, costs: Sequence[StepCost]) -> None:
        self._costs = costs

    def __len__(self) -> int:
        return len(self._costs)

    def seconds(self, segments: Sequence[Part]) -> list[float]:
        """Returns the seconds of each stage for a plan with these sequences. Only the last stage's seconds include the
        time of the host (scheduling and sampling)."""
        found = [cost.predict(segments) for cost in self._costs]
        members = [sum(part.seconds for part in each.parts if part.name != "host") for each in found[:-1]]
        return [*members, found[-1].seconds]


class RoundCost:
    """Predicts the rounds of a pipeline of stages: in a round, each decoding sequence gets one token. Satisfies
    `cost.shape.StepCost`.

    The sequences are divided among several plans where `sharing_pays`. A round takes as long as the slowest stage needs
    for all plans, or as long as the longest plan takes through all stages, whichever is more. whole: predicts a step
    through all stages. Its parts are scaled so that their sum is the time of the round.
    """

    def __init__(self, whole: StepCost, stages: StageTimes) -> None:
        self._whole, self._stages = whole, stages

    def predict(self, segments: Sequence[Part]) -> StepPrediction:
        """Predicts one round of the pipeline, in which each decoding sequence gets a token. One of the round's plans
        has the chunks of all prompts, too."""
        found = self._whole.predict(segments)
        streams = [each for each in segments if each.role is Role.DECODE]
        shares = len(self._stages) if sharing_pays(self._whole, streams, len(self._stages)) else 1
        plans = [streams[first::shares] for first in range(shares)]
        plans[-1] = [*plans[-1], *(each for each in segments if each.role is not Role.DECODE)]
        by_plan = [self._stages.seconds(plan) for plan in plans if plan]
        slowest_s = max((sum(by_stage) for by_stage in zip(*by_plan, strict=True)), default=0.0)
        seconds = max([slowest_s, *map(sum, by_plan)])
        share = seconds / found.seconds if found.seconds else 1.0
        return StepPrediction(
            tuple(PartPrediction(part.name, part.seconds * share, part.work, part.bound) for part in found.parts)
        )
