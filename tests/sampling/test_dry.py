"""DRY on texts that repeat themselves all along: the same penalties, in work that grows with the text alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sampling.test_samplers import published_dry
from twostroke.runner.sampling.samplers.dry import Dry, same_beginnings

MOST_FOR_A_TOKEN = 20


def dry(breakers: frozenset[int] = frozenset()) -> Dry:
    return Dry(0.8, 1.75, 2, -1, breakers)


def repeated(piece: int, size: int) -> list[int]:
    return [place % piece for place in range(size)]


@pytest.mark.parametrize("piece", [1, 2, 7, 100])
@pytest.mark.parametrize("breakers", [frozenset[int](), frozenset({0}), frozenset({3})])
def test_a_text_of_one_piece_again_and_again(piece: int, breakers: frozenset[int]) -> None:
    for size in (2, 3, piece + 1, 300):
        tokens = repeated(piece, size)
        assert dry(breakers).repetitions(tokens) == published_dry(tokens, set(breakers), -1)


def test_both_ways_find_the_same() -> None:
    dice = np.random.default_rng(3)
    for _ in range(300):
        tokens = dice.integers(0, dice.integers(1, 5), dice.integers(2, 60)).tolist()
        breakers = frozenset(dice.integers(0, 9, 2).tolist()) - {tokens[-1]}
        assert dry(breakers)._all_at_once(tokens) == published_dry(tokens, set(breakers), -1), (tokens, breakers)


def test_same_beginnings() -> None:
    assert same_beginnings([1, 2, 1, 2, 1, 3]) == [6, 0, 3, 0, 1, 0]
    assert same_beginnings([]) == [] and same_beginnings([5, 5]) == [2, 1]


class Counted(int):
    """A token that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) != other

    __hash__ = int.__hash__


@pytest.mark.parametrize("piece", [1, 2, 50, 1000])
def test_the_work_grows_with_the_text_and_not_with_its_square(piece: int) -> None:
    """One token 8,192 times took 33 million comparisons, which is seconds in which no other request got a token."""
    tokens: Any = [Counted(token) for token in repeated(piece, 8192)]
    Counted.compared = 0
    found = dry().repetitions(tokens)
    assert found and Counted.compared < MOST_FOR_A_TOKEN * len(tokens)
