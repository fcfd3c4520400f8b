"""How long a step would take: the cost model's word, corrected by what the last steps took.

Knows: a StepCost, the correction, plans.
Must not know: objectives, queues.
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.cost.shape import Segment, StepCost
from twostroke.scheduler.cost_correction import CostCorrection, StepKind
from twostroke.types.plan import Plan


class StepTime:
    """Seconds of steps that are not run yet. A prediction takes tens of microseconds."""

    def __init__(self, cost: StepCost, correction: CostCorrection) -> None:
        self._cost = cost
        self._correction = correction

    def usual_s(self, segments: Sequence[Segment]) -> float:
        """What it most likely takes: for plans of the future."""
        return self._cost.predict(segments).seconds * self._correction.usual(kind_of(segments))

    def high_s(self, segments: Sequence[Segment]) -> float:
        """What it rarely passes: for promises."""
        return self._cost.predict(segments).seconds * self._correction.high(kind_of(segments))

    def observe(self, plan: Plan, measured_s: float) -> None:
        """Learn from a finished step."""
        segments = [Segment(s.start, s.num_tokens, s.samples) for s in plan.sequences]
        self._correction.observe(kind_of(segments), self._cost.predict(segments).seconds, measured_s)


def kind_of(segments: Sequence[Segment]) -> StepKind:
    """Decode where every sequence has one row, prefill where none has, else mixed."""
    decodes = sum(segment.num_tokens == 1 for segment in segments)
    if decodes == len(segments):
        return StepKind.DECODE
    return StepKind.MIXED if decodes else StepKind.PREFILL
