"""What explain reports about guesses."""

from __future__ import annotations

import pytest

from tests.speculate.costs import RowCost, memory_bound
from twostroke.cost.explain.guesses import guess_seconds, guesses_text
from twostroke.cost.history.account import GuessCounts
from twostroke.cost.shape import Segment
from twostroke.types.plan import Role

COST = RowCost(memory_bound)
COUNTS = GuessCounts().with_step(3, 2).with_step(3, 0).with_step(2, 2)


def test_nothing_is_said_where_nothing_was_guessed() -> None:
    assert guesses_text(GuessCounts(), COST, [Segment.decode(5)]) == ""


def test_counts_are_given_without_a_cost_model() -> None:
    expected = "; 4 of 8 guessed tokens were accepted"
    assert guesses_text(COUNTS, None, [Segment.decode(5)]) == guesses_text(COUNTS, COST, []) == expected


@pytest.mark.parametrize("sample", [Segment.decode(5), Segment(5, 4, True, Role.DECODE, drafts=3)])
def test_seconds_are_those_of_the_cost_model(sample: Segment) -> None:
    """A step has three guesses on average: three steps have four rows instead of one, and four steps are saved."""
    won_s, lost_s = guess_seconds(COUNTS, COST, [sample])
    assert won_s == pytest.approx(4 * memory_bound(1))
    assert lost_s == pytest.approx(3 * (memory_bound(4) - memory_bound(1)))
    assert guesses_text(COUNTS, COST, [sample]).endswith("about 40 ms of steps spared, 0.90 ms for verifying")
