"""The correction of the cost model: it follows, it is bounded, outliers do not move it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twostroke.scheduler.cost_correction import LEAST, MOST, WINDOW_STEPS, CostCorrection, StepKind
from twostroke.scheduler.window import Window


def test_it_believes_the_model_until_steps_say_otherwise_and_then_follows() -> None:
    correction = CostCorrection()
    assert correction.usual(StepKind.DECODE) == correction.high(StepKind.MIXED) == 1.0
    for _ in range(8):
        correction.observe(StepKind.DECODE, 1.0, 1.3)
    assert correction.usual(StepKind.DECODE) == correction.high(StepKind.DECODE) == 1.3
    assert correction.usual(StepKind.MIXED) == 1.3, "a kind that was never seen takes the worst of the others"
    for _ in range(WINDOW_STEPS):
        correction.observe(StepKind.DECODE, 1.0, 0.9)
    assert correction.usual(StepKind.DECODE) == 0.9


def test_outliers_do_not_move_it() -> None:
    correction = CostCorrection()
    for index in range(WINDOW_STEPS):
        correction.observe(StepKind.MIXED, 0.010, 5.0 if index in (5, 40) else 0.011)
    assert abs(correction.usual(StepKind.MIXED) - 1.1) < 1e-9
    assert abs(correction.high(StepKind.MIXED) - 1.1) < 1e-9


def test_nineteen_of_twenty_steps_do_not_pass_high() -> None:
    correction = CostCorrection()
    for index in range(WINDOW_STEPS):
        correction.observe(StepKind.DECODE, 1.0, 1.0 + index / 100)
    passing = sum(1.0 + index / 100 > correction.high(StepKind.DECODE) for index in range(WINDOW_STEPS))
    assert 0 < passing < WINDOW_STEPS / 20


@given(st.lists(st.tuples(st.sampled_from(StepKind), st.floats(0, 1e6), st.floats(0, 1e6))))
def test_it_stays_bounded_and_is_a_function_of_what_it_saw(seen: list[tuple[StepKind, float, float]]) -> None:
    first, second = CostCorrection(), CostCorrection()
    for kind, predicted_s, measured_s in seen:
        first.observe(kind, predicted_s, measured_s)
        second.observe(kind, predicted_s, measured_s)
    for kind in StepKind:
        assert LEAST <= first.usual(kind) <= first.high(kind) <= MOST
        assert (first.usual(kind), first.high(kind)) == (second.usual(kind), second.high(kind))


@given(st.lists(st.floats(-10, 10), min_size=1), st.integers(1, 12), st.sampled_from([0.5, 0.9]))
def test_a_window_holds_the_last_values(values: list[float], size: int, share: float) -> None:
    window = Window(size)
    for value in values:
        window.add(value)
    kept = sorted(values[-size:])
    assert window.quantile(share) == kept[min(len(kept) - 1, int(share * len(kept)))]
