"""Choosing a token: temperature, top-k, top-p, min-p, and one uniform draw.

Candidates are ordered by probability, ties by token id, so the choice is a function of (logits, parameters, draw)
alone.

Knows: one row of logits.
Must not know: requests, positions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array

_FIRST_LOOK = 512
"""Candidates sorted before the whole vocabulary is: the top-p set is nearly always among them."""


def choose(logits: F32Array, temperature: float, top_k: int, top_p: float, min_p: float, draw: float) -> int:
    """logits (V,) after penalties; draw in [0, 1). Returns a token id."""
    if not (top_k or top_p < 1.0 or min_p > 0.0):
        return _invert(_probabilities(logits, temperature), draw)
    candidates, probabilities = _top_candidates(logits, temperature, top_k, top_p)
    if min_p > 0.0:
        kept = max(1, int(np.searchsorted(-probabilities, -min_p * probabilities[0], side="right")))
        candidates, probabilities = candidates[:kept], probabilities[:kept]
    return int(candidates[_invert(probabilities, draw)])


def _probabilities(logits: F32Array, temperature: float) -> NDArray[np.float64]:
    """exp((l - max) / temperature), not normalised; float64 so that tiny temperatures do not overflow."""
    shifted = logits.astype(np.float64) - float(logits.max())
    return np.exp(shifted / temperature)


def _top_candidates(
    logits: F32Array, temperature: float, top_k: int, top_p: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Token ids by falling probability, cut by top-k, then by the smallest set that holds top_p of what is left."""
    vocabulary = len(logits)
    keep = min(top_k, vocabulary) if top_k else vocabulary
    whole = _probabilities(logits, temperature)
    for look in (min(max(_FIRST_LOOK, keep if top_k else 0), vocabulary), vocabulary):
        candidates = _largest(logits, look)[:keep]
        probabilities = whole[candidates]
        total = float(probabilities.sum()) if top_k else float(whole.sum())
        if top_p >= 1.0 and (top_k or look == vocabulary):
            return candidates, probabilities
        reached = int(np.searchsorted(np.cumsum(probabilities), top_p * total)) + 1
        if reached <= len(candidates) or look == vocabulary:
            return candidates[:reached], probabilities[:reached]
    raise AssertionError("the last look covers the vocabulary")


def _largest(logits: F32Array, count: int) -> NDArray[np.int64]:
    """The ids of the `count` largest logits, best first, ties by id (also at the cut)."""
    if count < len(logits):
        threshold = np.partition(logits, len(logits) - count)[len(logits) - count]
        ids = np.flatnonzero(logits >= threshold)
    else:
        ids = np.arange(len(logits))
    return ids[np.argsort(-logits[ids], kind="stable")][:count]


def _invert(weights: NDArray[np.float64], draw: float) -> int:
    """The first index at which the cumulative weight exceeds draw * total; never one of weight 0."""
    cumulative = np.cumsum(weights)
    index = int(np.searchsorted(cumulative, draw * cumulative[-1], side="right"))
    return min(index, int(np.flatnonzero(weights)[-1]))
