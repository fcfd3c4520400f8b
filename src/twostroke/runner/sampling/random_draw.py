"""Random draws as a function of (seed, position): no generator, no state, the same after preemption or in any batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WORD = (1 << 64) - 1
DRAW_BITS = 53


def _mix(value: int) -> int:
    """Applies the finalizer of splitmix64 (Steele, Lea, Flood 2014): 64 bits in, 64 well-mixed bits out."""
    value = (value + 0x9E3779B97F4A7C15) & WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & WORD
    return value ^ (value >> 31)


def draw(seed: int, position: int) -> int:
    """Returns a number in [0, 2^53) for this seed and output position. Divided by 2^53 it is uniform in [0, 1)."""
    return _mix(_mix(seed & WORD) ^ _mix(~position & WORD)) >> (64 - DRAW_BITS)


def coin(seed: int, position: int) -> int:
    """Returns a second number in [0, 2^53) for this seed and output position. It is independent of `draw`."""
    return _mix(_mix(seed & WORD) ^ _mix(_mix(~position & WORD))) >> (64 - DRAW_BITS)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns `_mix` of each value."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def draws(seeds: NDArray[np.uint64], positions: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns `draw` of each pair of seed and position. seeds: the lowest 64 bits of each seed."""
    return _mixed(_mixed(seeds) ^ _mixed(~positions)) >> np.uint64(64 - DRAW_BITS)


def sibling_seed(seed: int, index: int) -> int:
    """Returns the seed of completion `index` of a request with n > 1. Index 0 keeps the request's seed."""
    return seed if index == 0 else _mix((seed & WORD) ^ _mix(index)) >> 1
