"""Merges that follow from the scores of a SentencePiece vocabulary, compared with their definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twostroke.weights.gguf.vocabulary import score_merges
from twostroke.weights.gguf.vocabulary.score_merges import LONGEST, merges_of_scores


def by_definition(vocab: dict[str, int], scores: np.ndarray, made: list[bool]) -> list[list[str]]:
    """Each piece is cut at each place. The pairs of known texts are sorted by score, then by the lengths of both
    parts."""
    found = []
    for piece, index in vocab.items():
        if made[index] and len(piece) <= LONGEST:
            cuts = [(piece[:middle], piece[middle:]) for middle in range(1, len(piece))]
            found += [(float(scores[index]), pair) for pair in cuts if pair[0] in vocab and pair[1] in vocab]
    found.sort(key=lambda merge: (-merge[0], -len(merge[1][0]), -len(merge[1][1])))
    return [list(pair) for _, pair in found]


WORDS = st.lists(st.text("ab\u2581\N{GRINNING FACE}\n", min_size=0, max_size=6), min_size=1, max_size=60, unique=True)


@given(WORDS, st.randoms(use_true_random=False), st.integers(1, 5))
def test_merges_are_those_of_the_definition_in_its_order(words: list[str], random, kinds: int) -> None:
    """Scores are few, so that many are equal. Ids are in any order, and some texts are no joins."""
    ids = random.sample(range(len(words) + 3), len(words))
    vocab = dict(zip(words, ids, strict=True))
    scores = np.array([random.randrange(kinds) / 3 for _ in range(len(words) + 3)], np.float32)
    made = [random.random() < 0.8 for _ in range(len(words) + 3)]
    assert merges_of_scores(vocab, scores, made) == by_definition(vocab, scores, made)


@pytest.mark.parametrize(("bits", "base"), [(1, score_merges._BASE), (24, 1), (3, 3)])
def test_texts_that_share_a_number_are_told_apart(monkeypatch: pytest.MonkeyPatch, bits: int, base: int) -> None:
    """With base 1 a number is a sum, so bca, cab and abc have the same one. The others share only bits."""
    monkeypatch.setattr(score_merges, "_BITS", bits)
    monkeypatch.setattr(score_merges, "_BASE", base)
    vocab = {text: place for place, text in enumerate(("a", "b", "c", "ab", "abc", "bca", "cab", "abcab", "abcabx"))}
    scores = -np.arange(len(vocab), dtype=np.float32)
    found = merges_of_scores(vocab, scores, [True] * len(vocab))
    assert found == by_definition(vocab, scores, [True] * len(vocab))
    assert ["abc", "ab"] in found and ["ab", "cab"] in found and len(found) == 5


def test_pieces_of_the_longest_length_are_joined_and_longer_ones_are_not() -> None:
    texts = ["a", *("a" * length for length in (LONGEST - 1, LONGEST, LONGEST + 1, 2 * LONGEST))]
    vocab = {text: place for place, text in enumerate(texts)}
    found = merges_of_scores(vocab, np.zeros(len(texts), np.float32), [True] * len(texts))
    assert found == [["a" * (LONGEST - 1), "a"], ["a", "a" * (LONGEST - 1)]]


def test_a_vocabulary_without_texts_has_no_merges() -> None:
    assert merges_of_scores({}, np.zeros(0, np.float32), []) == []
    assert merges_of_scores({"": 0}, np.zeros(1, np.float32), [True]) == []
