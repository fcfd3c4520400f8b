"""Acceptance: its chances follow the guesses that were right."""

import random

import pytest

from twostroke.engine.speculate.acceptance import Acceptance, GuessRecord
from twostroke.engine.speculate.proposer import Guess


def learned(rate: float, trials: int, matched: int = 4, seed: int = 0) -> tuple[Acceptance, GuessRecord]:
    rng = random.Random(seed)
    acceptance, record = Acceptance(), GuessRecord()
    for _ in range(trials):
        came_true = 0
        while came_true < 4 and rng.random() < rate:
            came_true += 1
        acceptance.observe("p", Guess([1, 2, 3, 4], matched), came_true, record)
    return acceptance, record


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.7, 1.0])
def test_chances_approach_the_rate(rate: float) -> None:
    acceptance, _ = learned(rate, 400)
    chances = acceptance.chances("p", Guess([1, 2, 3], 4), GuessRecord())
    assert chances[0] == pytest.approx(rate, abs=0.2)
    assert all(later <= earlier for earlier, later in zip(chances, chances[1:], strict=False))


def test_kinds_of_guesses_are_told_apart() -> None:
    acceptance, _ = learned(0.0, 100, matched=2)
    weak, strong = Guess([1], 2), Guess([1], 16)
    assert acceptance.chances("p", weak, GuessRecord())[0] < 0.1
    assert acceptance.chances("p", strong, GuessRecord())[0] == acceptance.chances("q", weak, GuessRecord())[0]


def test_the_proposers_own_chances_count() -> None:
    acceptance, record = Acceptance(), GuessRecord()
    sure, unsure = Guess([1, 2], 4, [1.0, 1.0]), Guess([1, 2], 4, [0.5, 0.2])
    assert acceptance.chances("p", sure, record) > acceptance.chances("p", unsure, record)
    for _ in range(200):  # tokens with a chance of one half are right half of the time, so the estimate is good
        acceptance.observe("p", Guess([1], 4, [0.5]), 0, record)
        acceptance.observe("p", Guess([1], 4, [0.5]), 1, record)
    assert acceptance.chances("p", Guess([1], 4, [0.9]), GuessRecord())[0] == pytest.approx(0.9, abs=0.1)


def test_a_request_is_judged_by_its_own_guesses() -> None:
    acceptance, _ = learned(0.5, 400)
    good, bad = GuessRecord(), GuessRecord()
    for _ in range(20):
        acceptance.observe("p", Guess([1], 4), 1, good)
        acceptance.observe("p", Guess([1], 4), 0, bad)
    first = {name: acceptance.chances("p", Guess([1], 4), each)[0] for name, each in (("good", good), ("bad", bad))}
    assert first["good"] > 0.8
    assert first["bad"] < 0.1
    for _ in range(40):
        acceptance.observe("p", Guess([1], 4), 1, bad)
    assert acceptance.chances("p", Guess([1], 4), bad)[0] > 0.5


def test_a_trial_that_is_true_so_far_has_no_failure() -> None:
    acceptance, record = Acceptance(), GuessRecord()
    before = acceptance.chances("p", Guess([1, 2], 4), record)
    acceptance.observe("p", Guess([1, 2, 3, 4], 4), 2, record, differs=False)
    after = acceptance.chances("p", Guess([1, 2], 4), GuessRecord())
    assert all(new > old for new, old in zip(after, before, strict=True))


def test_chances_stay_chances() -> None:
    acceptance, record = learned(1.0, 300)
    chances = acceptance.chances("p", Guess([1] * 8, 4), record)
    assert all(0 < chance < 1 for chance in chances)
