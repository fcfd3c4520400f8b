"""How long a step with guesses takes: the cost model's prediction, corrected by the times of earlier such steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from twostroke.cost.shape import Segment, StepCost
from twostroke.types.plan import Role

Segments = Callable[[int, int, int], Sequence[Segment]]
LOOKED_BACK = 15
"""The number of steps, with about the same number of guesses, whose median is taken as the time of such steps."""
LEAST_EVIDENCE = 3
PLAIN_AGAIN_STEPS = 64
"""The number of steps with guesses after which a step without guesses is due, to measure its time again."""
EXPIRES_STEPS = 512
"""Evidence that is older than this many steps is dropped, so that one slow hour does not end guessing for ever."""
LEAST, MOST = 0.001, 1000.0
"""The bounds of the ratio of a measured time to a predicted one. They are wide, because predictions for a machine
without calibration may be far off. Whether guessing pays depends on the difference between the ratios of steps with and
without guesses. Narrow bounds would cut both to the same value."""
_KEPT_PREDICTIONS = 4096


def decoding_rows(streams: int, position: int, guesses: int) -> list[Segment]:
    """Returns the segments of a step in which `streams` streams decode at this position, with their guesses spread
    evenly."""
    each, more = divmod(guesses, streams)
    drafts = [each + (index < more) for index in range(streams)]
    return [Segment(position, 1 + count, True, Role.DECODE, drafts=count) for count in drafts]


class _Ratios:
    """Measured divided by predicted time of the last steps with about the same number of guesses. Their median is used,
    so that no outlier decides."""

    def __init__(self) -> None:
        self.values: deque[float] = deque(maxlen=LOOKED_BACK)
        self.last_step = 0
        self.median = 1.0

    def add(self, ratio: float, step: int, prior: float) -> None:
        """Add the measured time of a step divided by its predicted time. prior: the ratio expected before any
        measurement. It counts for each of the steps that are missing up to LEAST_EVIDENCE, so that one outlier does not
        decide."""
        if step - self.last_step > EXPIRES_STEPS:
            self.values.clear()
        self.values.append(min(MOST, max(LEAST, ratio)))
        self.last_step = step
        known = sorted([*self.values, *[prior] * (LEAST_EVIDENCE - len(self.values))])
        self.median = known[len(known) // 2]


class VerifyTime:
    """Predicts the seconds of steps in which streams decode, and corrects predictions by measured times. Predictions
    are cached, because making one takes tens of microseconds, and a small step only some hundred.

    segments: makes the segments of a step for the cost model.
    """

    def __init__(self, cost: StepCost, segments: Segments = decoding_rows) -> None:
        self._cost, self._segments = cost, segments
        self._predicted: dict[tuple[int, int, int], float] = {}
        self._classes: dict[tuple[int, int], _Ratios] = {}  # keys are size classes of streams and of guesses
        self._step = 0

    def seconds(self, streams: int, position: int, guesses: int) -> float:
        """Returns the seconds of a step with this many streams, at about this position, and with `guesses` guesses of
        all streams together."""
        return self._prediction(streams, position, guesses) * self._ratio(streams, guesses.bit_length())

    def row_s(self, streams: int, position: int, prompt_rows: int) -> float:
        """Returns the seconds that one more row adds to a step, which already has `prompt_rows` rows of prompts.
        Arithmetic limits such a step."""
        few, many = (self._prediction(streams, position, each) for each in (prompt_rows, 2 * prompt_rows))
        return max(0.0, many - few) / prompt_rows * self._ratio(streams, 0)

    def observe(self, streams: int, position: int, guesses: int, measured_s: float) -> None:
        """Note that a step without prompts took `measured_s` seconds."""
        predicted_s = self._prediction(streams, position, guesses)
        if predicted_s <= 0 or measured_s <= 0:
            return
        self._step += 1
        size, ratio = guesses.bit_length(), measured_s / predicted_s
        prior = self._ratio(streams, size - 1) if size else ratio
        self._classes.setdefault((streams.bit_length(), size), _Ratios()).add(ratio, self._step, prior)

    def plain_is_known(self, streams: int) -> bool:
        """Returns True when steps without guesses were seen lately, with about the same number of streams. Steps with
        guesses are compared with them, because the cost model's error is not the same for each number of streams."""
        if not self._step:
            return True  # no step was seen, neither with guesses nor without
        plain = self._classes.get((streams.bit_length(), 0))
        known = plain is not None and len(plain.values) >= LEAST_EVIDENCE
        return known and plain is not None and self._step - plain.last_step <= PLAIN_AGAIN_STEPS

    def _ratio(self, streams: int, size: int) -> float:
        """Returns measured divided by predicted time of steps with about this many streams. size: the bit length of the
        number of guesses. If no such step was seen lately, the next smaller size is tried, down to 0 for steps without
        guesses."""
        for each in range(size, 0, -1):
            ratios = self._classes.get((streams.bit_length(), each))
            if ratios is not None and self._step - ratios.last_step <= EXPIRES_STEPS:
                return ratios.median
        plain = self._classes.get((streams.bit_length(), 0))
        return 1.0 if plain is None else plain.median

    def _prediction(self, streams: int, position: int, guesses: int) -> float:
        near = 1 << position.bit_length()  # a power of two: the difference of two steps hardly depends on the position
        key = (streams, near, guesses)
        seconds = self._predicted.get(key)
        if seconds is None:
            if len(self._predicted) >= _KEPT_PREDICTIONS:
                self._predicted.clear()
            seconds = self._cost.predict(self._segments(streams, near * 3 // 4, guesses)).seconds
            self._predicted[key] = seconds
        return seconds
