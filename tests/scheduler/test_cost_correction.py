"""The correction of the cost model: it follows, it is bounded, one outlier does not change it, and a pause removes
it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twostroke.engine.scheduler.estimates.cost_correction import (
    COLD_STEPS,
    DECODE,
    IDLE_HALF_S,
    LEAST,
    MOST,
    USUAL_STEPS,
    WINDOW_STEPS,
    CostCorrection,
    size_class,
)
from twostroke.engine.scheduler.estimates.window import Window

CHUNK = size_class(96)


def test_it_believes_the_model_until_two_steps_say_otherwise() -> None:
    for prior in (1.0, 2.0):
        correction = CostCorrection(prior, believed=False)
        assert correction.usual(DECODE) == correction.high(CHUNK) == prior
        correction.observe(CHUNK, 1.0, 0.5)
        assert correction.high(CHUNK) == prior, "one step may be an outlier"
        correction.observe(CHUNK, 1.0, 0.5)
        assert correction.usual(CHUNK) == correction.high(CHUNK) == 0.5
        for _ in range(USUAL_STEPS):
            correction.observe(CHUNK, 1.0, 0.9)
        assert correction.usual(CHUNK) == 0.9


def test_a_size_that_was_never_seen_takes_the_nearest_one() -> None:
    correction = CostCorrection()
    for _ in range(3):
        correction.observe(DECODE, 1.0, 3.0)
    assert correction.usual(CHUNK) == 3.0, "decode alone says something"
    for rows, ratio in ((64, 1.5), (512, 1.2)):
        for _ in range(3):
            correction.observe(size_class(rows), 1.0, ratio)
    assert correction.usual(size_class(40)) == 1.5 and correction.usual(size_class(300)) == 1.2
    assert correction.usual(size_class(200)) == 1.5, "two are as near: the slower one"


def test_one_outlier_moves_nothing_wherever_it_comes() -> None:
    for place in range(WINDOW_STEPS):
        correction = CostCorrection()
        for index in range(WINDOW_STEPS):
            correction.observe(CHUNK, 0.010, 5.0 if index == place else 0.011)
            if index > 2:
                assert correction.usual(CHUNK) == correction.high(CHUNK) == 1.1


def test_nineteen_of_twenty_steps_do_not_pass_high() -> None:
    correction = CostCorrection()
    for index in range(WINDOW_STEPS):
        correction.observe(DECODE, 1.0, 1.0 + index / 100)
    passing = sum(1.0 + index / 100 > correction.high(DECODE) for index in range(WINDOW_STEPS))
    assert 0 < passing < WINDOW_STEPS / 20


def test_after_idle_time_the_model_counts_again_and_new_steps_outweigh_old_ones() -> None:
    """What a slow minute taught must not refuse requests for ever."""
    correction = CostCorrection()
    for second in range(WINDOW_STEPS):
        correction.observe(CHUNK, 1.0, 4.0, now=float(second))
    last_s = WINDOW_STEPS - 1.0
    correction.at(last_s)
    assert correction.high(CHUNK) == 4.0
    correction.at(last_s + IDLE_HALF_S)
    assert correction.high(CHUNK) == 2.0
    correction.at(last_s + 10 * IDLE_HALF_S)
    assert correction.high(CHUNK) < 1.01
    for step in range(4):
        correction.observe(CHUNK, 1.0, 1.0, now=last_s + 10 * IDLE_HALF_S + step)
    assert correction.usual(CHUNK) == 1.0


def test_a_guess_has_nothing_to_go_back_to() -> None:
    correction = CostCorrection(2.0, believed=False)
    for second in range(9):
        correction.observe(CHUNK, 1.0, 0.4, now=float(second))
    correction.at(1000.0)
    assert correction.high(CHUNK) == 0.4


@pytest.mark.parametrize("factor", [0.004, 300.0])
def test_a_guess_may_be_wrong_by_any_factor(factor: float) -> None:
    """The machine may be one that nobody has measured. In a measured model such a factor is a disturbance."""
    guessed, measured = CostCorrection(2.0, believed=False), CostCorrection()
    for correction in (guessed, measured):
        for _ in range(4):
            correction.observe(CHUNK, 1.0, factor)
    assert guessed.usual(CHUNK) == factor
    assert measured.usual(CHUNK) == (LEAST if factor < 1 else MOST)


@given(st.lists(st.tuples(st.sampled_from([DECODE, 5, 6, 9]), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 100))))
def test_it_stays_bounded_and_is_a_function_of_what_it_saw(seen: list[tuple[int, float, float, float]]) -> None:
    first, second = CostCorrection(), CostCorrection()
    now = 0.0
    for size, predicted_s, measured_s, pause_s in seen:
        now += measured_s + pause_s
        first.observe(size, predicted_s, measured_s, now)
        second.observe(size, predicted_s, measured_s, now)
        for each in (first, second):
            each.at(now + pause_s)
    for size in (DECODE, 4, 5, 6, 9, 12):
        assert LEAST <= first.usual(size) <= first.high(size) <= MOST
        assert (first.usual(size), first.high(size)) == (second.usual(size), second.high(size))


@given(st.lists(st.floats(-10, 10), min_size=1), st.integers(1, 12), st.sampled_from([0.5, 0.9]))
def test_a_window_holds_the_last_values(values: list[float], size: int, share: float) -> None:
    window = Window(size)
    for value in values:
        window.add(value)
    kept = sorted(values[-size:])
    assert window.quantile(share) == kept[min(len(kept) - 1, int(share * len(kept)))]


def test_low_is_the_speed_of_steps_that_nothing_disturbs() -> None:
    """Two steps of three are slow for a while. The median follows them, and low does not."""
    correction = CostCorrection()
    for index in range(WINDOW_STEPS):
        correction.observe(DECODE, 1.0, 1.0 if index % 3 == 0 else 2.2)
    assert correction.low(DECODE) == 1.0 < correction.usual(DECODE) == 2.2
    for _ in range(WINDOW_STEPS):
        correction.observe(DECODE, 1.0, 2.2)
    assert correction.low(DECODE) == 2.2, "a machine that stays slow is slow"
    assert CostCorrection(2.0, believed=False).low(DECODE) == 1.0, "a guess is not taken twice for a bound"


def test_steps_next_to_other_work_tell_nothing_of_the_machines_own_speed() -> None:
    """They count for what the next steps take, because the other work goes on."""
    correction = CostCorrection()
    for _ in range(WINDOW_STEPS // 2):
        correction.observe(DECODE, 1.0, 2.0)
    for _ in range(WINDOW_STEPS):
        correction.observe(DECODE, 1.0, 5.0, disturbed=True)
    assert correction.low(DECODE) == 2.0 and correction.usual(DECODE) == correction.high(DECODE) == 5.0
    fresh = CostCorrection(2.0, believed=False)
    fresh.observe(DECODE, 1.0, 5.0, disturbed=True)
    assert fresh.low(DECODE) == 1.0, "as long as no step was measured alone"


def test_cold_steps_count_until_the_first_that_is_not_cold() -> None:
    correction = CostCorrection()
    assert correction.cold_factor == correction.cold_high == 1.0
    for measured_s in (40.0, 4.0, 4.0):
        correction.observe_cold(CHUNK, 1.0, measured_s)
    assert correction.cold_factor == 4.0, "the median of three: the very first step is an outlier"
    assert correction.usual(CHUNK) == correction.high(CHUNK) == 1.0, "they say nothing of later steps"
    correction.observe_cold(DECODE, 1.0, 1.0)
    assert correction.cold_factor == 4.0, "the slower kind of steps"
    assert correction.cold_high == 10.0, "the slowest one, bounded: the next step rarely passes it"
    for _ in range(COLD_STEPS):
        correction.observe_cold(CHUNK, 1.0, 4.0)
    assert correction.cold_high == 4.0
    correction.observe(CHUNK, 1.0, 1.0, 1.0)
    assert correction.cold_factor == correction.cold_high == 1.0
