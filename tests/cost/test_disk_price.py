"""Pages are read where reading is predicted to take less than half of the time of computing them, by the measured
rate."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from twostroke.cost.disk_price import FIRST_RATE, GREETING_S, DiskPrice
from twostroke.cost.shape import Bound, Part, PartPrediction, StepPrediction
from twostroke.cost.work import Work


class RowCost:
    """A cost of a tenth of a millisecond for each row."""

    def predict(self, segments: Sequence[Part]) -> StepPrediction:
        seconds = 1e-4 * sum(segment.num_tokens for segment in segments)
        return StepPrediction((PartPrediction("weights", seconds, Work(), Bound.ARITHMETIC),))


def price() -> DiskPrice:
    return DiskPrice(RowCost(), 512)


def test_half_of_computing_decides() -> None:
    asked = price()
    computing_s = asked.computing_s(0, 4096)
    just = int((computing_s / 2 - GREETING_S) * FIRST_RATE)
    assert just > 0
    assert asked.worth_reading(just - 1000, 0, 4096)
    assert not asked.worth_reading(just + 1000, 0, 4096)
    assert asked.computing_s(0, 0) == 0 and not asked.worth_reading(0, 0, 0)


def test_what_is_already_there_counts_as_computed() -> None:
    asked = price()
    assert asked.computing_s(2048, 4096) < asked.computing_s(0, 4096)


def test_the_first_reading_replaces_the_guess_and_later_ones_move_it() -> None:
    asked = price()
    asked.observe(1000, 1.0)
    assert asked.rate == FIRST_RATE, "so few bytes say nothing"
    asked.observe(10_000_000, 1.0)
    assert asked.rate == pytest.approx(10e6)
    asked.observe(20_000_000, 1.0)
    assert 10e6 < asked.rate < 20e6
    assert asked.reading_s(0) == GREETING_S


def test_a_slow_disk_is_left_alone() -> None:
    """A slow disk is a worn card, or a folder on a network."""
    asked = price()
    num_bytes = int((asked.computing_s(0, 4096) / 4) * FIRST_RATE)
    assert asked.worth_reading(num_bytes, 0, 4096)
    asked.observe(1_000_000, 10.0)
    assert not asked.worth_reading(num_bytes, 0, 4096)
