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

_FIRST_LOOK, _LOOK_MORE = 512, 8
"""How many candidates are sorted first, and by which factor this number grows for each further look. The top-p set is
nearly always among the first."""
_BLOCK = 512
_PLACE_BITS, _MAGNITUDE = 32, np.int32((1 << 31) - 1)

IdArray = NDArray[np.int64]


def choose(
    weigh: Weigh, logits: F32Array, temperature: float, top_k: int, top_p: float, min_p: float, draw: int
) -> int:
    """Samples a token with temperature, top-k, top-p and min-p, and returns its id. weigh: makes weights, proportional
    to probabilities, from logits. logits: (V,), after penalties. draw: the random number, in [0, 2^53)."""
    weights = weigh(logits, temperature)
    if not (top_k or top_p < 1.0 or min_p > 0.0):
        return drawn(weights, draw)
    if top_k or top_p < 1.0:
        candidates = top_candidates(logits, weights, top_k, top_p)
        if min_p > 0.0:
            found = weights[candidates]
            candidates = candidates[found >= share_of(min_p, int(found[0]))]
        candidates = np.sort(candidates)
    else:
        candidates = np.flatnonzero(weights >= share_of(min_p, int(weights.max())))
    return int(candidates[drawn(weights[candidates], draw)])


def top_candidates(logits: F32Array, weights: WeightArray, top_k: int, top_p: float) -> IdArray:
    """Returns token ids by falling logit: the top_k best, and of these the smallest set that holds top_p of their
    weight."""
    vocabulary = len(logits)
    keep = min(top_k, vocabulary) if top_k else vocabulary
    for look in looks(keep if top_k else 0, vocabulary):
        candidates = largest(logits, look)[:keep]
        if top_p >= 1.0 and (top_k or look == vocabulary):
            return candidates
        cumulative = np.cumsum(weights[candidates])
        total = int(cumulative[-1]) if top_k else int(weights.sum())
        reached = int(np.searchsorted(cumulative, share_of(top_p, total))) + 1
        if reached <= len(candidates) or look == vocabulary:
            return candidates[:reached]
    raise AssertionError("the last look covers the vocabulary")


def looks(least: int, vocabulary: int) -> Iterable[int]:
    """Yields how many candidates to sort: at each attempt more, from at least `least` up to the whole vocabulary."""
    look = max(_FIRST_LOOK, least)
    while look < vocabulary:
        yield look
        look *= _LOOK_MORE
    yield vocabulary


def largest(logits: NDArray[np.floating[Any]], count: int) -> IdArray:
    """Returns the ids of the `count` largest logits, best first. Equal logits are in the order of their ids, also at
    the cut."""
    if count < len(logits):
        threshold = np.partition(logits, len(logits) - count)[len(logits) - count]
        ids = np.flatnonzero(logits >= threshold)
        return ids[_falling(logits[ids])][:count]
    return _falling(logits)[:count]


def _falling(values: NDArray[np.floating[Any]]) -> IdArray:
    """Returns the indices that sort `values`, the largest first, as a stable argsort would. Each 32-bit value becomes a
    whole number that falls as the value rises; its low bits hold the index. Whole numbers are sorted many times faster
    than floats."""
    if values.dtype != np.float32:
        return _falling_wide(values)
    bits = (values + np.float32(0)).view(np.int32)  # -0 becomes 0, which it is equal to
    keys = np.where(bits >= 0, -bits, bits & _MAGNITUDE).astype(np.int64) << _PLACE_BITS
    keys |= np.arange(len(keys))
    keys.sort()
    return keys & ((1 << _PLACE_BITS) - 1)


def _falling_wide(values: NDArray[np.floating[Any]]) -> IdArray:
    """Returns what `_falling` returns, for values of 64 bits. A quick sort, which is not stable, finds the order. Then
    equal values are put in the order of their indices."""
    order: IdArray = np.argsort(-values)
    found = values[order]
    differs = found[1:] != found[:-1]
    if differs.all():
        return order
    groups = np.concatenate([[0], np.cumsum(differs)]) << _PLACE_BITS
    return np.sort(groups | order) & ((1 << _PLACE_BITS) - 1)


def share_of(share: float, total: int) -> np.uint64:
    """Returns share * total, rounded up."""
    return np.uint64(-(-int(share * (1 << DRAW_BITS)) * total >> DRAW_BITS))


def share_below(share: float, total: int) -> np.uint64:
    """Returns share * total, rounded down."""
    return np.uint64(int(share * (1 << DRAW_BITS)) * total >> DRAW_BITS)


def drawn(weights: WeightArray, draw: int) -> int:
    """Samples an index: the first one at which the cumulative weight exceeds draw / 2^53 of the total. The weight at
    this index is never 0. Sums of whole blocks are added first, and then the weights of one block."""
    whole = len(weights) // _BLOCK * _BLOCK
    blocks = np.append(weights[:whole].reshape(-1, _BLOCK).sum(axis=1), weights[whole:].sum())
    sums = np.cumsum(blocks)
    wanted = np.uint64(draw * int(sums[-1]) >> DRAW_BITS)
    block = int(np.searchsorted(sums, wanted, side="right"))
    inside = np.cumsum(weights[block * _BLOCK : (block + 1) * _BLOCK])
    return block * _BLOCK + int(np.searchsorted(inside, wanted - (sums[block] - blocks[block]), side="right"))
