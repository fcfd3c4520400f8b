"""How many steps until running answers end, estimated from answers that have ended and from those that still run."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from twostroke.engine.scheduler.sequence import Sequence as Answer

ENDED_KEPT = 64
"""Lengths are learned from the answers that were admitted last. Their number is that of the answers that run at
present, plus this one."""
RATE_SAFETY = 0.5
"""The safety margin of a rate of ends (ended answers for each generated token): n observed ends count as (sqrt(n) -
0.5)^2. The true rate is at least that high in about 85% of the cases."""
COUNT_SAFETY = 0.7
"""The safety margin of the number of running answers that are expected to end: this many standard deviations are
subtracted."""
EDGES = (0, *(round(16 * 2 ** (i / 2)) for i in range(34)))
"""The numbers of tokens at which the classes of lengths begin: 0, 16, 23, 32, 45 and so on. The last class has no end.
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """An answer that has ended. stopped: True when it ended before its limit of tokens."""

    admission: int
    num_tokens: int
    stopped: bool


class AnswerLengths:
    """Learns how often answers end in each class of lengths: the number of answers that ended there, divided by the
    number of tokens that all answers made there.

    Running answers count as well, because they have not ended yet. Without them only short answers would be known in
    the first seconds of a burst. Only the answers that were admitted last are used, long or short, so that long answers
    are not missing because they still run. An answer that ended at its limit (max_tokens) only shows that it did not
    stop before. When no answer was seen to stop, only limits end answers. (A life table with censored observations:
    Kaplan and Meier 1958, with a constant rate in each class.)
    """

    def __init__(self) -> None:
        self._ended: deque[Ended] = deque(maxlen=4 * ENDED_KEPT)
        self._num_ended = 0
        self._forecast: EndForecast | None = None
        self._forecast_of = (0, 0, 0)

    def ended(self, answer: Answer) -> None:
        """Learn the length of an answer that has ended. Answers that were never admitted are ignored."""
        if answer.admission is not None and answer.num_output:
            stopped = answer.num_output < answer.request.max_tokens
            self._ended.append(Ended(answer.admission, answer.num_output, stopped))
            self._num_ended += 1

    @property
    def mean_tokens(self) -> float | None:
        """The mean length of the last answers, in tokens; None when none has ended."""
        last = [each.num_tokens for each in self._ended][-ENDED_KEPT:]
        return sum(last) / len(last) if last else None

    def forecast(self, running: Sequence[Answer]) -> EndForecast:
        """Returns when these answers are expected to end; there must be at least one. The forecast is kept until one of
        the answers has one token more."""
        key = (self._num_ended, len(running), sum([len(each.known) for each in running]))
        if self._forecast is None or self._forecast_of != key:
            self._forecast, self._forecast_of = EndForecast(running, self._rates(running)), key
        return self._forecast

    def _rates(self, running: Sequence[Answer]) -> EndRates:
        least = max(s.admission or 0 for s in running) - len(running) - ENDED_KEPT
        lengths = [(each.num_tokens, each.stopped) for each in self._ended if each.admission > least]
        lengths += [(each.num_output, False) for each in running if (each.admission or 0) > least]
        return EndRates(lengths)


class EndRates:
    """The probability that an answer stops at its next token, for each class of lengths (EDGES). lengths: for each
    observed answer, its number of tokens so far, and True when it stopped there (False: it still runs, or reached its
    limit)."""

    def __init__(self, lengths: Sequence[tuple[int, bool]]) -> None:
        reached, made, ends = [0] * len(EDGES), [0] * len(EDGES), [0] * len(EDGES)
        for num_tokens, stopped in lengths:
            last = _class_of(num_tokens)
            reached[last] += 1
            made[last] += num_tokens - EDGES[last]
            ends[last] += stopped
        self._sums, self._each, longer, total = [], [], len(lengths), 0.0  # type: list[float], list[float], int, float
        for index, edge in enumerate(EDGES):
            wide = EDGES[index + 1] - edge if index + 1 < len(EDGES) else edge
            longer -= reached[index]
            tokens = made[index] + longer * wide
            rate = max(0.0, math.sqrt(ends[index]) - RATE_SAFETY) ** 2 / tokens if tokens else 0.0
            self._sums.append(total)
            self._each.append(rate)
            total += rate * wide

    def until(self, num_tokens: float) -> float:
        """Returns the sum of the probabilities of ending, over all tokens before num_tokens. The share of answers that
        are longer than num_tokens is exp(-sum)."""
        index = _class_of(num_tokens)
        return self._sums[index] + self._each[index] * (num_tokens - EDGES[index])


class EndForecast:
    """Forecasts after how many steps a number of running answers have ended. Answers of one class of lengths are
    treated as equally long.

    The first call of `steps_until` takes some hundred microseconds, however many answers run; further calls take less.
    """

    def __init__(self, running: Sequence[Answer], rates: EndRates) -> None:
        self._rates = rates
        classes: dict[int, list[Answer]] = {}
        for each in running:
            classes.setdefault(_class_of(each.num_output), []).append(each)
        self._groups: list[tuple[float, float, list[int]]] = []
        for group in classes.values():
            tokens = sum([each.num_output for each in group]) / len(group)
            left = sorted([each.request.max_tokens - each.num_output for each in group])
            self._groups.append((tokens, rates.until(tokens), left))
        self._last = max(1, max(left[-1] for _, _, left in self._groups))
        self._known: dict[int, float] = {}

    def steps_until(self, ends: int) -> int:
        """Returns the number of steps after which at least `ends` answers have ended. If fewer run, returns the number
        until all have ended."""
        high = 1
        while high < self._last and self._ends_within(high) < ends:
            high *= 2
        low, high = high // 2, min(high, self._last)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._ends_within(middle) >= ends else (middle, high)
        return high

    def _ends_within(self, steps: int) -> float:
        """Returns the number of running answers that very likely end within this many steps. Ends at limits are
        certain; of the others, a few less than the expected number are counted."""
        if steps in self._known:
            return self._known[steps]
        certain, mean, variance = 0, 0.0, 0.0
        for tokens, before, left in self._groups:
            at_limit = bisect_right(left, steps)
            certain += at_limit
            if at_limit < len(left):
                goes_on = math.exp(before - self._rates.until(tokens + steps))
                mean += (1.0 - goes_on) * (len(left) - at_limit)
                variance += goes_on * (1.0 - goes_on) * (len(left) - at_limit)
        found = self._known[steps] = certain + max(0.0, mean - COUNT_SAFETY * math.sqrt(variance))
        return found


def _class_of(num_tokens: float) -> int:
    """Returns the index in EDGES of the class of lengths to which num_tokens belongs."""
    return bisect_right(EDGES, num_tokens) - 1
