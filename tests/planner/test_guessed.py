"""Decode with guesses, as `plan` predicts it."""

from __future__ import annotations

import pytest

from tests.speculate.costs import RowCost, arithmetic_bound, memory_bound
from twostroke.lab.planner.guessed import guessed_decode


def test_one_stream_gains_by_the_rate() -> None:
    found = guessed_decode(RowCost(memory_bound), 1, 500, 0.7)
    tokens = sum(0.7**place for place in range(found.guesses + 1))
    assert 3 <= found.guesses <= 8
    assert found.rate_tokens_per_s == pytest.approx(tokens / memory_bound(1 + found.guesses))
    assert found.rate_tokens_per_s > 2 / memory_bound(1)


def test_nothing_is_guessed_where_rows_are_dear() -> None:
    found = guessed_decode(RowCost(arithmetic_bound), 8, 500, 0.9)
    assert (found.guesses, found.rate_tokens_per_s) == (0, pytest.approx(8 / arithmetic_bound(8)))
