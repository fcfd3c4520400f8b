"""How long a step would take: the cost model's word, corrected by what the last steps took.

Knows: a StepCost, the correction, plans.
Must not know: objectives, queues.
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.cost.shape import Segment, StepCost
from twostroke.scheduler.cost_correction import GUESS_PRIOR, CostCorrection, size_class
from twostroke.types.plan import Plan


class StepTime:
    """Seconds of steps that are not run yet. A prediction takes tens of microseconds."""

    def __init__(self, cost: StepCost, correction: CostCorrection) -> None:
        self._cost = cost
        self._correction = correction

    @classmethod
    def of(cls, cost: StepCost, guessed: bool) -> StepTime:
        """guessed: nobody measured this machine, so that the model is trusted less until steps were measured."""
        return cls(cost, CostCorrection(GUESS_PRIOR, believed=False) if guessed else CostCorrection())

    def at(self, now: float) -> None:
        """It is this late; see CostCorrection."""
        self._correction.at(now)

    @property
    def sure(self) -> bool:
        """Is there evidence of how long prompts take?"""
        return self._correction.sure

    def usual_s(self, segments: Sequence[Segment]) -> float:
        """What it most likely takes: for plans of the future."""
        return self._cost.predict(segments).seconds * self._correction.usual(_class_of(segments))

    def high_s(self, segments: Sequence[Segment]) -> float:
        """What it rarely passes: for promises."""
        return self._cost.predict(segments).seconds * self._correction.high(_class_of(segments))

    def observe(self, plan: Plan, measured_s: float, now: float = 0.0, stream_starts: Sequence[int] = ()) -> None:
        """Learn from a step that ended now. stream_starts: positions of streams that were in it and not in the plan."""
        segments = [Segment(start, 1, True) for start in stream_starts]
        segments += [Segment(s.start, s.num_tokens, s.samples) for s in plan.sequences]
        self._correction.observe(_class_of(segments), self._cost.predict(segments).seconds, measured_s, now)


def _class_of(segments: Sequence[Segment]) -> int:
    return size_class(sum([each.num_tokens for each in segments if each.num_tokens > 1]))
