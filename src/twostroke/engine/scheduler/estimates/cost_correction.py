"""Measures the error of the cost model on this machine: the ratio of measured to predicted time, by the size of a step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from twostroke.types.objectives import ITL_SHARE

WINDOW_STEPS, USUAL_STEPS = 64, 15
"""For each size class (`size_class`), how many of the last steps count. WINDOW_STEPS ratios measured / predicted time
give the quantiles `high` and `low`; USUAL_STEPS ratios give the median `usual`."""
LEAST_EVIDENCE = 3
"""While a size class has fewer measured steps than this, the prior stands in for each missing one. The prior is the
ratio measured / predicted time that is assumed before steps are measured."""
LEAST, MOST = 0.1, 10.0
LEAST_OF_GUESS, MOST_OF_GUESS = 0.001, 1000.0
"""The bounds of the ratio measured / predicted when the cost model is a guess, because nobody has measured this
machine."""
HIGH = ITL_SHARE + 0.01
"""The quantile that `high` is: 96% of the steps take no longer. An ITL objective is met when 95% of the gaps are within
it, so this leaves 1% to spare."""
LOW = 0.1
"""The quantile that `low` is: 10% of the steps are quicker. Other programs rarely disturb these steps."""
GUESS_PRIOR = 2.0
"""The prior of a cost model that was not measured: its first steps are planned as if they took twice the predicted
time.
"""
IDLE_HALF_S = 10.0
"""The seconds without a step after which a learned ratio is applied as its square root, because conditions may have
changed. Only ratios of a cost model that was measured on this machine fade in this way."""
SURE_PREFILLS = 4
"""The number of steps with prompts after which a guessed cost model counts as corrected."""
COLD_STEPS = 8
"""The number of last cold steps from which the next step's time is estimated. A cold step is one during which memory
was still being made ready, as after a start."""
KEPT_AFTER_IDLE = 2
"""The number of measured steps of each size class that are remembered after more than IDLE_HALF_S seconds without a
step. It is small, so that new steps soon outweigh the old ones."""
DECODE = 0
"""The class of steps in which every sequence has one row."""


def size_class(prefill_rows: int) -> int:
    """Returns the size class of a step by its number of prefill rows: one class for each power of two. Predictions err
    differently by size: a step of few rows mostly reads weights, a step of many rows mostly multiplies."""
    return prefill_rows.bit_length() if prefill_rows else DECODE


class Ratios:
    """The ratios measured / predicted seconds of the last steps of one size class; while there are few, the assumed
    ratio `prior` stands in for the missing ones. usual, high, low: their median, 96% and 10% quantiles. `low` uses only
    steps in which the executor did no other work."""

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._values, self._undisturbed = (deque[float](maxlen=WINDOW_STEPS) for _ in range(2))
        self.usual = self.high = prior
        self.low = min(1.0, prior)

    def add(self, ratio: float, disturbed: bool = False) -> None:
        """Add the ratio measured / predicted seconds of one step. disturbed: whether the executor did other work in the
        same step."""
        self._values.append(ratio)
        if not disturbed:
            self._undisturbed.append(ratio)
        self._update()

    def forget(self) -> None:
        """Forget all steps but the last few."""
        for kept in (self._values, self._undisturbed):
            while len(kept) > KEPT_AFTER_IDLE:
                kept.popleft()
        self._update()

    def __len__(self) -> int:
        return len(self._values)

    def _update(self) -> None:
        self.low = self._low()
        if len(self._values) == 1:  # one value is too little to predict faster steps, but enough to be careful
            self.usual = self.high = max(self._prior, self._values[0])
            return
        missing = [self._prior] * (LEAST_EVIDENCE - len(self._values))
        values = sorted([*missing, *self._values])
        last = sorted([*missing, *list(self._values)[-USUAL_STEPS:]])
        self.usual = last[len(last) // 2]
        # The slowest value never counts: it may be an outlier until a second value confirms it.
        self.high = max(self.usual, values[min(len(values) - 2, int(HIGH * len(values)))])


    def _low(self) -> float:
        own = list(self._undisturbed)
        if len(own) < LEAST_EVIDENCE - 1:
            return min(self._prior, *(own or [1.0]))
        found = sorted([*[self._prior] * (LEAST_EVIDENCE - len(own)), *own])
        return found[int(LOW * len(found))]


class CostCorrection:
    """The ratio of measured to predicted times, by size class of a step (`size_class`).

    The same observations at the same times give the same ratios. Each ratio is bounded to [1/10, 10]; when the cost
    model is a guess, to [1/1000, 1000].

    `usual` is the median of the last 15 steps of a size class, `high` the 96th percentile of the last 64, without the
    slowest: one outlier moves neither. `low` is the 10th percentile of the last 64: the machine's own speed, even when
    other programs disturb it at times. Two steps outweigh the prior. A class with fewer than two steps uses the ratio
    of the nearest class with two.

    believed: True when the cost model was measured on this machine. Then the ratios move towards 1 while the machine is
    idle. The ratios of a guessed model do not move. After a long idle time only the last steps are remembered.
    """

    def __init__(self, prior: float = 1.0, believed: bool = True) -> None:
        self._prior = prior
        self._believed = believed
        self._bounds = (LEAST, MOST) if believed else (LEAST_OF_GUESS, MOST_OF_GUESS)
        self._classes: dict[int, Ratios] = {}
        self._last_s: float | None = None
        self._weight = 1.0
        self._cold: dict[bool, deque[float]] = {}  # ratios, by whether the step contains only decodes

    @property
    def sure(self) -> bool:
        """True when there is evidence of how long prompts take: a measured model, or a few measured steps with prompts
        in them."""
        prefills = sum(len(ratios) for size, ratios in self._classes.items() if size != DECODE)
        return self._believed or prefills >= SURE_PREFILLS

    def at(self, now: float) -> None:
        """Sets the time for which the corrections are wanted. The longer the last step lies before `now`, the closer
        the corrections of a measured cost model are to 1."""
        idle_s = 0.0 if self._last_s is None else max(0.0, now - self._last_s)
        self._weight = 0.5 ** (idle_s / IDLE_HALF_S) if self._believed else 1.0

    def observe(
        self, size: int, predicted_s: float, measured_s: float, now: float = 0.0, disturbed: bool = False
    ) -> None:
        """Learns from one step that ended at `now`. size: its size class. disturbed: whether the executor did other
        work in the same step; then the step does not count for `low`. A step that took no time is ignored."""
        if predicted_s <= 0 or measured_s <= 0:
            return
        if self._last_s is not None and now - measured_s - self._last_s > IDLE_HALF_S:
            for ratios in self._classes.values():
                ratios.forget()
        self._last_s, self._weight = now, 1.0
        self._cold.clear()
        if size not in self._classes:
            self._classes[size] = Ratios(self._prior)
        self._classes[size].add(self._bounded(measured_s / predicted_s), disturbed)

    def observe_cold(self, size: int, predicted_s: float, measured_s: float) -> None:
        """Note one cold step: memory was being made ready while it ran, so it took longer. It counts for `cold_factor`
        and `cold_high` until the first step that is not cold."""
        usual_s = predicted_s * self.usual(size)
        if usual_s > 0 and measured_s > 0:
            last = self._cold.setdefault(size == DECODE, deque(maxlen=COLD_STEPS))
            last.append(min(MOST, max(1.0, measured_s / usual_s)))

    @property
    def cold_factor(self) -> float:
        """How many times longer than usual steps take while weights or other memory are still being made ready (cold
        steps). It is the median of the last cold steps, or 1 when the last step was not cold.

        Decode steps and steps with prompts have a median each; this is the larger one.
        """
        return max((sorted(last)[len(last) // 2] for last in self._cold.values()), default=1.0)

    @property
    def cold_high(self) -> float:
        """How many times longer than usual the slowest of the last cold steps took; 1 when the last step was not cold.
        The next step rarely takes longer."""
        return max((max(last) for last in self._cold.values()), default=1.0)

    def usual(self, size: int) -> float:
        """Returns the most likely ratio of measured to predicted seconds of a step of this size class."""
        return self._weighted(max(ratios.usual for ratios in self._nearest(size)))

    def low(self, size: int) -> float:
        """Returns the ratio of measured to predicted seconds of a step of this size class when nothing disturbs it."""
        return self._weighted(min(ratios.low for ratios in self._nearest(size)))

    def high(self, size: int) -> float:
        """Returns the ratio of measured to predicted seconds that 96% of the steps of this size class do not exceed."""
        return self._weighted(max(ratios.high for ratios in self._nearest(size)))

    def _bounded(self, ratio: float) -> float:
        """Returns the ratio within its bounds, and rounded: the size of a chunk must not depend on the last bits of a
        sum of seconds."""
        least, most = self._bounds
        bounded = min(most, max(least, ratio))
        return round(bounded, 3 if bounded >= LEAST else 6)

    def _weighted(self, ratio: float) -> float:
        return ratio if self._weight == 1.0 else ratio**self._weight

    def _nearest(self, size: int) -> Iterable[Ratios]:
        """Returns the ratios of the size classes nearest to `size`; classes with at least two measured steps are
        preferred. Steps with prompts and steps without prompts (DECODE) are kept apart. If no step of the same kind was
        measured, returns the prior and the ratios of the other kind. The caller uses the most careful ratio: the
        largest one, or for `low` the smallest."""
        kin = {each: ratios for each, ratios in self._classes.items() if (each == DECODE) == (size == DECODE)}
        if not kin:
            return (Ratios(self._prior), *self._classes.values())
        seen = [each for each, ratios in kin.items() if len(ratios) >= LEAST_EVIDENCE - 1] or list(kin)
        distance = min(abs(each - size) for each in seen)
        return [kin[each] for each in seen if abs(each - size) == distance]
