"""Curves are linear between points, and constant or proportional beyond them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twostroke.cost.curve import Curve

POINTS = st.dictionaries(st.integers(1, 1000), st.floats(0.0, 1e3), min_size=1, max_size=8)


def test_between_points_it_is_linear() -> None:
    curve = Curve.of([(4.0, 10.0), (1.0, 1.0), (8.0, 20.0)])
    assert (curve.xs, curve.ys) == ((1.0, 4.0, 8.0), (1.0, 10.0, 20.0))
    assert [curve.at(x) for x in (1, 2, 4, 6, 8)] == [1.0, 4.0, 10.0, 15.0, 20.0]


def test_beyond_the_ends_it_stays_or_grows_in_proportion() -> None:
    curve = Curve.of([(2.0, 3.0), (4.0, 6.0)])
    assert curve.at(1) == 3.0 and curve.at(100) == 6.0
    assert curve.scaled_at(1) == 3.0 and curve.scaled_at(100) == 150.0


@given(POINTS)
def test_it_passes_through_its_points(points: dict[int, float]) -> None:
    curve = Curve.of([(float(x), y) for x, y in points.items()])
    assert all(curve.at(x) == pytest.approx(y) and curve.scaled_at(x) == pytest.approx(y) for x, y in points.items())


@given(POINTS, st.floats(0.5, 1500))
def test_it_stays_between_its_points(points: dict[int, float], x: float) -> None:
    assert min(points.values()) - 1e-9 <= Curve.of(list(points.items())).at(x) <= max(points.values()) + 1e-9


@pytest.mark.parametrize(("xs", "ys"), [((), ()), ((1.0, 1.0), (2.0, 2.0)), ((2.0, 1.0), (1.0, 1.0)), ((1.0,), ())])
def test_what_is_no_curve_is_refused(xs: tuple[float, ...], ys: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="xs that rise"):
        Curve(xs, ys)
