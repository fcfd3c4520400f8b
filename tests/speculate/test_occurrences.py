"""The index of occurrences, compared with a search of the whole text."""

import random

import pytest

from twostroke.engine.speculate.occurrences import SHORTEST, Occurrence, Occurrences
from twostroke.engine.speculate.running_texts import SearchedText


def searched(text: list[int], tokens: list[int], depth: int) -> list[Occurrence]:
    """All places, latest first, found one by one."""
    found = []
    for place in range(len(tokens) - 1, 0, -1):
        matched = 0
        while matched < min(depth, place, len(text)) and tokens[place - 1 - matched] == text[len(text) - 1 - matched]:
            matched += 1
        if matched >= SHORTEST:
            found.append(Occurrence(place, matched))
    return found


@pytest.mark.parametrize("alphabet", [1, 2, 3, 20])
def test_every_place_is_found(alphabet: int) -> None:
    rng = random.Random(alphabet)
    tokens: list[int] = []
    index, running = Occurrences(), SearchedText()
    for _ in range(300):
        tokens.append(rng.randrange(alphabet))
        index.add(tokens)
        if rng.random() < 0.6:  # it is asked only now and then, and catches up
            running.add(tokens)
        expected = searched(tokens, tokens, 12)
        if any(each.matched >= 8 for each in expected):
            expected = [each for each in expected if each.matched >= 8]
        assert index.of_end(tokens, tokens, 12, 1000) == expected
        assert index.of_end(tokens, tokens, 12, 2) == expected[:2]
        if len(running) == len(tokens):
            assert running.of_end(tokens, 12, 1000) == expected
            assert running.of_end(tokens, 12, 2) == expected[:2]


def test_tokens_that_share_a_character_are_told_apart() -> None:
    tokens = [5, 7, 1, 5, 7 + 0x110000]
    running = SearchedText()
    running.add(tokens)
    assert running.of_end(tokens, 12, 10) == []
    tokens += [2, 5, 7 + 0x110000]
    running.add(tokens)
    assert running.of_end(tokens, 12, 10) == [Occurrence(5, 2)]


def test_the_end_of_another_text() -> None:
    tokens = [1, 2, 3, 4, 5, 1, 2, 9]
    index = Occurrences()
    index.add(tokens)
    assert index.of_end([7, 1, 2], tokens, 12, 10) == [Occurrence(7, 2), Occurrence(2, 2)]
    assert index.of_end([5, 1, 2], tokens, 12, 10) == [Occurrence(7, 3), Occurrence(2, 2)]
    assert index.of_end([2], tokens, 12, 10) == []
    assert index.of_end([4, 4], tokens, 12, 10) == []


def test_runs_with_the_same_hash_are_told_apart() -> None:
    """hash(-1) == hash(-2), so these two runs share a chain."""
    tokens = [5, -1, 7, 5, -2, 8]
    index = Occurrences()
    index.add(tokens)
    assert index.of_end([5, -1], tokens, 12, 10) == [Occurrence(2, 2)]
