"""Finds the merges of a SentencePiece vocabulary. Its file stores no merges, but a score for each piece.

Each piece is split at all places between its characters: 2 million places in a vocabulary of 262,144. Texts are first
looked up by hashes, all at once. Only pairs of texts whose hashes are found are compared as texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 512
"""The number of characters of the longest piece that a merge can make."""
_BASE = 0x9E3779B97F4A7C15
"""The base of the hashes of texts (see `_pairs`). It is odd, so multiplying by it can be undone modulo 2^64."""
_MIXED = np.uint64(0xD6E8FEB86659FD93)
_BITS = 24
"""The number of bits of a hash by which texts are looked up first. One of 60 texts that are not in a large vocabulary
passes."""

Numbers = NDArray[np.uint64]
Places = NDArray[np.int64]


def merges_of_scores(vocab: Mapping[str, int], scores: NDArray[Any], made: Sequence[bool]) -> list[list[str]]:
    """Returns each pair of texts of the vocabulary that, joined, is another text of it. The pairs are sorted: higher
    scores of the joined text first, then longer first parts, then longer second parts. scores: a number for each id.
    made: for each id, whether its text can be made by joining."""
    texts = [text for text in vocab if 0 < len(text) <= LONGEST]
    ids = np.fromiter((vocab[text] for text in texts), np.int64, len(texts))
    joins, firsts, seconds = _pairs(texts, np.asarray(made, bool)[ids])
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    order = np.lexsort((-lengths[seconds], -lengths[firsts], -scores[ids[joins]].astype(np.float64)))
    known = np.array([*texts, ""], object)[:-1]
    joined, left, right = (known[places[order]].tolist() for places in (joins, firsts, seconds))
    return [[one, two] for whole, one, two in zip(joined, left, right, strict=True) if one + two == whole]


def _pairs(texts: Sequence[str], made: NDArray[np.bool_]) -> tuple[Places, Places, Places]:
    """Finds the texts that are made of two other texts. Returns the indices of joined texts, of their first parts and
    of their second parts, in the order of the joined texts. Every true pair is in the result; a few pairs may be false.

    A text with the characters c0, c1, ... has the hash c0 + c1 * _BASE + c2 * _BASE^2 ... modulo 2^64. A running sum
    over a text's characters therefore gives the hashes of all its beginnings and ends. made: for each text, whether it
    may be a result of a merge.
    """
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4").astype(np.uint64)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    ends = np.cumsum(lengths)
    begins = ends - lengths
    of_text = np.repeat(np.arange(len(texts)), lengths)
    middles = np.arange(len(codes)) - begins[of_text]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(codes * _powers(_BASE)[middles])])
    numbers = sums[ends] - sums[begins]
    order = np.argsort(numbers)
    ordered, last = numbers[order], len(texts) - 1
    if (ordered[1:] == ordered[:-1]).any():
        return _pairs_by_text(texts, made)
    there = np.zeros(1 << _BITS, bool)
    there[_bits_of(numbers)] = True
    inner = np.flatnonzero((middles > 0) & made[of_text])
    inner = inner[there[_bits_of(sums[inner] - sums[begins[of_text[inner]]])]]
    joins = of_text[inner]
    first = sums[inner] - sums[begins[joins]]
    second = (sums[ends[joins]] - sums[inner]) * _powers(pow(_BASE, -1, 1 << 64))[middles[inner]]
    found = there[_bits_of(second)]
    places = [order[np.minimum(np.searchsorted(ordered, each[found]), last)] for each in (first, second)]
    known = (numbers[places[0]] == first[found]) & (numbers[places[1]] == second[found])
    return joins[found][known], places[0][known], places[1][known]


def _pairs_by_text(texts: Sequence[str], made: NDArray[np.bool_]) -> tuple[Places, Places, Places]:
    """Returns the indices of joined texts, of their first parts and of their second parts, as `_pairs` does. It looks
    up the texts themselves, for vocabularies in which two texts have the same hash."""
    place_of = {text: place for place, text in enumerate(texts)}
    found = [
        (join, place_of[text[:middle]], place_of[text[middle:]])
        for join, text in enumerate(texts)
        for middle in (range(1, len(text)) if made[join] else ())
        if text[:middle] in place_of and text[middle:] in place_of
    ]
    joins, firsts, seconds = np.array(found, np.int64).reshape(-1, 3).T
    return joins, firsts, seconds


def _powers(base: int) -> Numbers:
    return np.multiply.accumulate(np.array([1, *[base] * LONGEST], np.uint64))


def _bits_of(numbers: Numbers) -> Places:
    """Returns, for each hash, an index of _BITS bits into the table of known hashes, made from all bits of the hash."""
    return (numbers * _MIXED >> np.uint64(64 - _BITS)).astype(np.int64)
