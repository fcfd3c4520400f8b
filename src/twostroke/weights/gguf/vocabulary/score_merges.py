"""The merges of a SentencePiece vocabulary, which has a score for each piece in their place.

A piece is looked for in all places between its characters: 2 million in a vocabulary of 262,144. Numbers that stand for
texts leave out most of them first, and what is left is looked up as texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 512
"""Characters of the longest piece that is made of two."""
_BASE = 0x9E3779B97F4A7C15
"""An odd number: multiplying by it can be undone modulo 2^64."""
_MIXED = np.uint64(0xD6E8FEB86659FD93)
_BITS = 24
"""Bits of a number of a text that are kept. One of 60 texts outside of a large vocabulary counts as one of it."""

Numbers = NDArray[np.uint64]


def merges_of_scores(vocab: Mapping[str, int], scores: NDArray[Any], made: Sequence[bool]) -> list[list[str]]:
    """All pairs of texts of the vocabulary whose join is a piece, by the join's score; among equals longer first parts,
    and then longer second parts, come first. scores, made: of each id; made: whether a text of this id can be a join.
    """
    texts = [text for text in vocab if 0 < len(text) <= LONGEST]
    ids = np.fromiter((vocab[text] for text in texts), np.int64, len(texts))
    places, middles = _likely(texts, np.asarray(made, bool)[ids])
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    order = np.lexsort((middles - lengths[places], -middles, -scores[ids[places]].astype(np.float64)))
    found: list[list[str]] = []
    for place, middle in zip(places[order].tolist(), middles[order].tolist(), strict=True):
        text = texts[place]
        left, right = text[:middle], text[middle:]
        if left in vocab and right in vocab:
            found.append([left, right])
    return found


def _likely(texts: Sequence[str], made: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Texts that can be joins, and places in them, on both sides of which there is probably another text; in order.

    The number of characters c0, c1, ... is c0 + c1 * _BASE + c2 * _BASE^2 ... modulo 2^64. The numbers of all parts of
    a text follow from the sums up to each of its characters.
    """
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4").astype(np.uint64)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    ends = np.cumsum(lengths)
    begins = ends - lengths
    of_text = np.repeat(np.arange(len(texts)), lengths)
    middles = np.arange(len(codes)) - begins[of_text]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(codes * _powers(_BASE)[middles])])
    there = np.zeros(1 << _BITS, bool)
    there[_bits_of(sums[ends] - sums[begins])] = True
    inner = np.flatnonzero((middles > 0) & made[of_text])
    inner = inner[there[_bits_of(sums[inner] - sums[begins[of_text[inner]]])]]
    after = sums[ends[of_text[inner]]] - sums[inner]
    inner = inner[there[_bits_of(after * _powers(pow(_BASE, -1, 1 << 64))[middles[inner]])]]
    return of_text[inner], middles[inner]


def _powers(base: int) -> Numbers:
    """base^0 to base^LONGEST modulo 2^64."""
    return np.multiply.accumulate(np.array([1, *[base] * LONGEST], np.uint64))


def _bits_of(numbers: Numbers) -> NDArray[np.int64]:
    """Numbers mixed and cut to _BITS."""
    return (numbers * _MIXED >> np.uint64(64 - _BITS)).astype(np.int64)
