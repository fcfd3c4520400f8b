"""The median compared with Python's own."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twostroke.engine.speculate.median import median


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_it_is_pythons_median(times: list[float]) -> None:
    assert median(times) == statistics.median(times)


def test_nothing_has_none() -> None:
    with pytest.raises(IndexError):
        median([])
