"""How long a step would take: the cost model's prediction, corrected by what the last steps took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twostroke.cost.shape import Part, Segment, StepCost
from twostroke.engine.scheduler.estimates.cost_correction import GUESS_PRIOR, CostCorrection, size_class
from twostroke.types.plan import Role


class StepTime:
    """Predicts the seconds of steps that are not run yet. A prediction takes tens of microseconds."""

    def __init__(self, cost: StepCost, correction: CostCorrection) -> None:
        self._cost = cost
        self._correction = correction

    @classmethod
    def of(cls, cost: StepCost, guessed: bool) -> StepTime:
        """Returns a StepTime of this cost model. guessed: True when this machine was not measured, so the model is
        trusted less until steps were measured."""
        return cls(cost, CostCorrection(GUESS_PRIOR, believed=False) if guessed else CostCorrection())

    def at(self, now: float) -> None:
        """Set the time from which the next predictions are made. What was learned from measured steps counts less the
        longer ago the last of them ended."""
        self._correction.at(now)

    @property
    def sure(self) -> bool:
        """True when there is evidence of how long prompts take."""
        return self._correction.sure

    @property
    def cold_factor(self) -> float:
        """How many times longer steps take at this moment because memory is still being made ready, as after a start; 1
        when that is over."""
        return self._correction.cold_factor

    def usual_s(self, segments: Sequence[Segment]) -> float:
        """Returns the seconds that the step most likely takes, used for plans of the future."""
        return self._cost.predict(segments).seconds * self._correction.usual(_class_of(segments))

    def low_s(self, segments: Sequence[Segment]) -> float:
        """Returns the seconds that the step takes when nothing disturbs it, by the machine's own speed."""
        return self._cost.predict(segments).seconds * self._correction.low(_class_of(segments))

    def high_s(self, segments: Sequence[Segment]) -> float:
        """Returns the seconds that the step rarely exceeds, used for promises."""
        return self._cost.predict(segments).seconds * self._correction.high(_class_of(segments))

    def now_s(self, segments: Sequence[Segment]) -> float:
        """Returns the seconds that the very next step rarely exceeds, even if memory is still being made ready."""
        return self.high_s(segments) * self._correction.cold_high

    def observe_cold(self, parts: Iterable[Part], measured_s: float) -> None:
        """Learn from a cold step, in which memory was still being made ready. What is learned corrects only the
        predictions until the first step that is not cold."""
        held = tuple(parts)
        self._correction.observe_cold(_class_of(held), self._cost.predict(held).seconds, measured_s)

    def observe(self, parts: Iterable[Part], measured_s: float, now: float = 0.0, disturbed: bool = False) -> None:
        """Learn from a step that computed these parts and ended now. disturbed: whether the executor did other work in
        the same step, whose time is not in measured_s. `low_s` then learns nothing from this step."""
        held = tuple(parts)
        self._correction.observe(_class_of(held), self._cost.predict(held).seconds, measured_s, now, disturbed)


def _class_of(segments: Sequence[Part]) -> int:
    return size_class(sum([each.num_tokens for each in segments if each.role is Role.PREFILL]))
