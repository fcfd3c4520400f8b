"""Choosing a token: temperature, top-k, top-p, min-p, and one uniform draw, in whole numbers.

top-k, top-p and min-p keep a set of tokens; the draw chooses among them in the order of their ids. So the choice is a
function of (logits, parameters, draw) alone, and the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.attention.token_weights import Weigh, WeightArray
from twostroke.ops.operands import F32Array
from twostroke.runner.sampling.random_draw import DRAW_BITS

_FIRST_LOOK = 512
"""How many candidates are sorted before the whole vocabulary is. The top-p set is nearly always among them."""

IdArray = NDArray[np.int64]


def choose(
    weigh: Weigh, logits: F32Array, temperature: float, top_k: int, top_p: float, min_p: float, draw: int
) -> int:
    """Returns a token id. logits: (V,), after penalties. draw: a number in [0, 2^53)."""
    weights = weigh(logits, temperature)
    if not (top_k or top_p < 1.0 or min_p > 0.0):
        return drawn(weights, draw)
    candidates = top_candidates(logits, weights, top_k, top_p)
    if min_p > 0.0:
        found = weights[candidates]
        candidates = candidates[found >= share_of(min_p, int(found[0]))]
    candidates = np.sort(candidates)
    return int(candidates[drawn(weights[candidates], draw)])


def top_candidates(logits: F32Array, weights: WeightArray, top_k: int, top_p: float) -> IdArray:
    """Returns token ids by falling logit: the top_k best, and of these the smallest set that holds top_p of their
    weight."""
    vocabulary = len(logits)
    keep = min(top_k, vocabulary) if top_k else vocabulary
    for look in _looks(keep if top_k else 0, vocabulary):
        candidates = largest(logits, look)[:keep]
        if top_p >= 1.0 and (top_k or look == vocabulary):
            return candidates
        cumulative = np.cumsum(weights[candidates])
        total = int(cumulative[-1]) if top_k else int(weights.sum())
        reached = int(np.searchsorted(cumulative, share_of(top_p, total))) + 1
        if reached <= len(candidates) or look == vocabulary:
            return candidates[:reached]
    raise AssertionError("the last look covers the vocabulary")


def _looks(least: int, vocabulary: int) -> Iterable[int]:
    return min(max(_FIRST_LOOK, least), vocabulary), vocabulary


def largest(logits: NDArray[np.floating[Any]], count: int) -> IdArray:
    """Returns the ids of the `count` largest logits, best first. Equal logits are in the order of their ids, also at
    the cut."""
    if count < len(logits):
        threshold = np.partition(logits, len(logits) - count)[len(logits) - count]
        ids = np.flatnonzero(logits >= threshold)
    else:
        ids = np.arange(len(logits))
    return ids[np.argsort(-logits[ids], kind="stable")][:count]


def share_of(share: float, total: int) -> np.uint64:
    """Returns share * total, rounded up."""
    return np.uint64(-(-int(share * (1 << DRAW_BITS)) * total >> DRAW_BITS))


def share_below(share: float, total: int) -> np.uint64:
    """Returns share * total, rounded down."""
    return np.uint64(int(share * (1 << DRAW_BITS)) * total >> DRAW_BITS)


def drawn(weights: WeightArray, draw: int) -> int:
    """Returns the first index at which the cumulative weight exceeds draw / 2^53 of the total. Its weight is never 0.
    """
    cumulative = np.cumsum(weights)
    return int(np.searchsorted(cumulative, np.uint64(draw * int(cumulative[-1]) >> DRAW_BITS), side="right"))
