"""When running answers end: forecasts of free places come true, whatever the answers' lengths and limits."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from tests.scheduler.fakes import request
from twostroke.engine.scheduler.objectives.answer_lengths import EDGES, AnswerLengths, _class_of
from twostroke.engine.scheduler.sequence import Sequence

PLACES = 64


def answer(admission: int, num_output: int, limit: int) -> Sequence:
    asked = request(admission, 4, limit)
    return Sequence(asked, admission, [*asked.prompt_token_ids, *range(num_output)], admission=admission)


def lognormal(dice: random.Random) -> int:
    return max(1, round(120 * math.exp(0.6 * dice.gauss(0, 1))))


def memoryless(dice: random.Random) -> int:
    return 1 + int(dice.expovariate(1 / 150))


def two_kinds(dice: random.Random) -> int:
    return dice.choice([8, 400]) + dice.randrange(5)


class Places:
    """PLACES places. Each step gives one token to each answer, and a new answer takes the place of one that ended."""

    def __init__(self, length: Callable[[random.Random], int], limit_factor: int, seed: int) -> None:
        self._dice, self._length, self._factor = random.Random(seed), length, limit_factor
        self.lengths = AnswerLengths()
        self.admissions = 0
        self.running: list[tuple[Sequence, int]] = []

    def fill(self) -> None:
        while len(self.running) < PLACES:
            self.admissions += 1
            tokens = self._length(self._dice)
            self.running.append((answer(self.admissions, 0, tokens * self._factor), tokens))

    def step(self) -> int:
        """Returns how many ended."""
        for each, _ in self.running:
            each.known.append(0)
        ended = [each for each, tokens in self.running if each.num_output >= tokens]
        for each in ended:
            self.lengths.ended(each)
        self.running = [(each, tokens) for each, tokens in self.running if each.num_output < tokens]
        return len(ended)


def forecast(places: Places, ends: int) -> int:
    return places.lengths.forecast([each for each, _ in places.running]).steps_until(ends)


@pytest.mark.parametrize("begin", [0, 40, 120, 500], ids="after {} steps".format)
@pytest.mark.parametrize(
    ("length", "factor"),
    [(lognormal, 1), (lognormal, 4), (lognormal, 1000), (memoryless, 1), (memoryless, 1000), (two_kinds, 1)],
)
def test_forecasts_come_true_in_nine_of_ten_cases(
    length: Callable[[random.Random], int], factor: int, begin: int
) -> None:
    """This holds from the first moment of a burst, when only the shortest answers have ended. Limits: factor *
    length."""
    kept = total = 0
    for seed in range(12):
        places = Places(length, factor, seed)
        for _ in range(begin):
            places.fill()
            places.step()
        places.fill()
        forecasts = {ends: forecast(places, ends) for ends in (1, 4, 8, 16)}
        done = step = 0
        while done < 16:
            before, done, step = done, done + places.step(), step + 1
            for ends, steps in forecasts.items():
                if before < ends <= done:
                    kept, total = kept + (step <= steps), total + 1
    assert total == 48 and kept >= 0.9 * total


def test_forecasts_are_not_careful_without_reason() -> None:
    """In a steady state they are less than 2.5 times the truth on average, although no limit is near."""
    ratios = []
    for seed in range(12):
        places = Places(lognormal, 1000, seed)
        for _ in range(600):
            places.fill()
            places.step()
        places.fill()
        steps = forecast(places, 8)
        done = truth = 0
        while done < 8:
            done, truth = done + places.step(), truth + 1
        ratios.append(steps / truth)
    assert 1.0 < sum(ratios) / len(ratios) < 2.5


def test_limits_are_exact() -> None:
    """These answers never stop before their limits: only limits end them."""
    lengths = AnswerLengths()
    for admission in range(1, 200):
        lengths.ended(answer(admission, 300, 300))
    assert lengths.mean_tokens == 300
    running = [answer(200 + i, 0, 10 * (i + 1)) for i in range(10)]
    found = lengths.forecast(running)
    assert [found.steps_until(ends) for ends in (1, 5, 10, 11)] == [10, 50, 100, 100]


def test_a_forecast_is_that_of_the_moment() -> None:
    places = Places(lognormal, 4, 1)
    places.fill()
    first = forecast(places, 1)
    places.step()
    assert forecast(places, 1) == first - 1, "nothing has stopped yet: limits count"


def test_more_ends_take_longer_and_every_length_has_its_class() -> None:
    lengths = AnswerLengths()
    assert lengths.mean_tokens is None
    running = [answer(i + 1, 37 * i, 5000) for i in range(PLACES)]
    found = lengths.forecast(running)
    steps = [found.steps_until(ends) for ends in range(1, PLACES + 1)]
    assert steps == sorted(steps) and steps[-1] <= 5000
    for number in range(5000):
        index = _class_of(number)
        assert EDGES[index] <= number < EDGES[index + 1]
    assert _class_of(1 << 40) == len(EDGES) - 1
