"""GuessLimiter and VerifyTime: how many guesses pay."""

import itertools
import math
import random

import pytest

from tests.speculate.costs import RowCost, arithmetic_bound, memory_bound
from twostroke.engine.speculate.guess_limiter import MARGIN, GuessLimiter, StepShape
from twostroke.engine.speculate.verify_time import EXPIRES_STEPS, VerifyTime, decoding_rows


def limiter(seconds=memory_bound) -> GuessLimiter:  # type: ignore[no-untyped-def]
    return GuessLimiter(VerifyTime(RowCost(seconds)))


def falling(rate: float, count: int) -> list[float]:
    return list(itertools.accumulate([rate] * count, lambda all_before, each: all_before * each))


def test_a_guess_with_a_small_chance_is_not_verified() -> None:
    assert limiter().counts(StepShape(1, 100), [[0.02, 0.01]]) == [0]
    assert limiter().counts(StepShape(1, 100), []) == []


def test_likely_guesses_are_verified_where_rows_cost_little() -> None:
    (count,) = limiter().counts(StepShape(1, 100), [falling(0.9, 8)])
    assert count == 7  # with the eighth, the step has nine rows, and arithmetic decides


def test_nothing_is_verified_where_each_row_costs_a_step() -> None:
    assert limiter(arithmetic_bound).counts(StepShape(1, 100), [falling(0.99, 8)]) == [0]
    assert limiter(arithmetic_bound).counts(StepShape(32, 100), [falling(0.99, 8)] * 32) == [0] * 32


def test_the_likeliest_guesses_go_first() -> None:
    counts = limiter().counts(StepShape(4, 100), [falling(0.3, 4), falling(0.95, 4), falling(0.6, 4), []])
    assert counts[1] >= counts[2] >= counts[0]
    assert counts[1] > 0
    assert counts[3] == 0


@pytest.mark.parametrize("seed", range(30))
def test_no_other_number_of_guesses_is_predicted_to_be_better(seed: int) -> None:
    """For one stream, all numbers up to 8 are tried."""
    rng = random.Random(seed)
    chances = falling(rng.random(), 8)
    (count,) = limiter().counts(StepShape(1, 100), [chances])

    def tokens_a_second(guesses: int) -> float:
        return (1 + sum(chances[:guesses])) / memory_bound(1 + guesses)

    kept = sum(chance >= 0.05 for chance in chances)
    best = max(range(kept + 1), key=tokens_a_second)
    assert count == (best if tokens_a_second(best) > tokens_a_second(0) * (1 + MARGIN) else 0)


def test_room_and_promises_bound_the_guesses() -> None:
    likely = [falling(0.9, 8)]
    assert limiter().counts(StepShape(1, 100, room_rows=2), likely) == [2]
    assert limiter().counts(StepShape(1, 100, room_rows=0), likely) == [0]
    assert limiter().counts(StepShape(1, 100, room_rows=-3), likely) == [0]
    assert limiter().counts(StepShape(1, 100, bound_s=memory_bound(4)), likely) == [3]
    assert limiter().counts(StepShape(1, 100, bound_s=1e-3), likely) == [0]


def test_beside_prompts_a_guess_must_be_worth_a_row_of_arithmetic() -> None:
    """A row costs 1.35 ms. A token of one stream is worth 10.1 ms, and a token of eight streams 1.35 ms."""
    one = limiter().counts(StepShape(1, 100, beside_prompts=True), [[0.9, 0.5, 0.15, 0.1]])
    assert one == [3]
    assert limiter().counts(StepShape(8, 100, beside_prompts=True), [[0.9, 0.5]] * 8) == [0] * 8


def test_what_computes_its_guesses_must_earn_that_time_too() -> None:
    free = limiter().most(StepShape(1, 100), 0.8, 0.8, 0.0, 0.0, 8)
    dear = limiter().most(StepShape(1, 100), 0.8, 0.8, 0.0, 2e-3, 8)
    assert free > dear > 0
    assert limiter().most(StepShape(1, 100), 0.8, 0.8, 0.0, 20e-3, 8) == 0
    assert limiter().most(StepShape(1, 100), 0.1, 0.8, 0.0, 2e-3, 8) == 0


def test_steps_that_take_longer_than_predicted_end_the_guessing() -> None:
    """The model predicts that rows are free; here each costs as much as a step."""
    found = limiter(lambda rows: 10e-3)
    shape = StepShape(1, 100)
    for _ in range(3):
        found.times.observe(1, 100, 0, 10e-3)
    assert found.counts(shape, [falling(0.9, 4)]) == [4]
    found.times.observe(1, 100, 4, 50e-3)
    assert found.counts(shape, [falling(0.9, 4)]) == [4]  # one slow step may be an outlier
    found.times.observe(1, 100, 4, 50e-3)
    assert found.counts(shape, [falling(0.9, 4)]) == [3]
    for _ in range(2):
        found.times.observe(1, 100, 3, 40e-3)
        found.times.observe(1, 100, 1, 20e-3)
    assert found.counts(shape, [falling(0.9, 4)]) == [0]


def test_such_evidence_does_not_count_for_ever() -> None:
    times = VerifyTime(RowCost(lambda rows: 10e-3))
    for _ in range(2):
        times.observe(1, 100, 4, 50e-3)
    assert times.seconds(1, 100, 4) == pytest.approx(50e-3)
    for _ in range(EXPIRES_STEPS + 1):
        times.observe(1, 100, 0, 11e-3)
    assert times.seconds(1, 100, 4) == pytest.approx(11e-3)
    for _ in range(2):
        times.observe(1, 100, 4, 12e-3)
    assert times.seconds(1, 100, 4) == pytest.approx(12e-3)  # earlier measurements are gone


def test_outliers_and_nonsense_teach_nothing() -> None:
    times = VerifyTime(RowCost(lambda rows: 10e-3))
    for measured_s in (10e-3, 10e-3, 10e-3, 3.0, 0.0, -1.0):
        times.observe(2, 100, 0, measured_s)
    assert times.seconds(2, 100, 0) == pytest.approx(10e-3)


def test_one_stream_says_nothing_of_many() -> None:
    """The cost model is right for one stream and twice too slow for 32. So steps without guesses must be measured
    first."""
    times = VerifyTime(RowCost(lambda rows: 10e-3))
    assert times.plain_is_known(32)  # nothing is known of any proposer
    for _ in range(3):
        times.observe(1, 100, 0, 10e-3)
    assert times.plain_is_known(1)
    assert not times.plain_is_known(32)
    times.observe(32, 100, 8, 6e-3)
    for _ in range(3):
        times.observe(32, 100, 0, 5e-3)
    assert times.plain_is_known(32)
    assert times.seconds(32, 100, 0) == pytest.approx(5e-3)
    assert times.seconds(1, 100, 0) == pytest.approx(10e-3)
    for _ in range(100):
        times.observe(32, 100, 8, 6e-3)
    assert not times.plain_is_known(32)  # one is due


def test_predictions_are_kept() -> None:
    cost = RowCost(memory_bound)
    times = VerifyTime(cost)
    for position in range(1025, 2000):
        times.seconds(3, position, 5)
    assert cost.calls == 1


def test_rows_of_a_step_with_guesses() -> None:
    segments = decoding_rows(3, 100, 4)
    assert [(each.num_tokens, each.drafts) for each in segments] == [(3, 2), (2, 1), (2, 1)]
    assert all(each.samples and each.start == 100 for each in segments)
    assert not math.isnan(limiter().token_s(StepShape(2, 10)))
