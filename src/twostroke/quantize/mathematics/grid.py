"""Grids: the values that the codes of a group of columns can stand for, and the nearest codes.

    value = scale * (code - zero), code in [0, 2^bits), scale > 0 of float16

In a symmetric grid, zero is 2^(bits - 1). Otherwise zero is a code. The scale is searched: a smaller range clips the
extremes and rounds all other values more finely. The scale with the smallest weighted squared error is taken, the first
of equals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twostroke.quantize.mathematics.moments import F32Array

SHRINK_STEPS = 20
SMALLEST_SHRINK = 0.5
_LEAST_SCALE = np.float32(2.0**-24)
"""The smallest float16 above 0."""


@dataclass(frozen=True, slots=True)
class GridRule:
    """How the scale and the zero point of a group of weights are found. bits: the bits of a code. symmetric: whether
    the zero point is always the middle code. searched: whether smaller scales, which clip the largest weights, are
    tried too."""

    bits: int
    symmetric: bool
    searched: bool = True

    @property
    def top(self) -> int:
        """The largest code: 2^bits - 1."""
        return (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """The zero point of a symmetric grid."""
        return 1 << (self.bits - 1)


@dataclass(frozen=True, eq=False, slots=True)
class Grid:
    """The scales and zero points of one group of columns, one of each for every row. scales, zeros: (rows,) float32;
    scales are exact in float16."""

    rule: GridRule
    scales: F32Array
    zeros: F32Array

    def codes(self, values: F32Array) -> F32Array:
        """Returns the nearest codes of (rows, n) values, as whole float32 numbers."""
        shifted = np.rint(values / self.scales[:, None]) + self.zeros[:, None]
        found: F32Array = np.clip(shifted, np.float32(0), np.float32(self.rule.top))
        return found

    def values(self, codes: F32Array) -> F32Array:
        """Returns the values for which (rows, n) codes stand."""
        found: F32Array = (codes - self.zeros[:, None]) * self.scales[:, None]
        return found


def find_grid(values: F32Array, rule: GridRule, importance: F32Array | None = None) -> Grid:
    """Returns the scales and zero points with which a group of columns is rounded. values: (rows, n), the group's
    numbers. importance: (n,) weights of the columns' errors, None for equal weights."""
    best = _grid(values, rule, np.float32(1))
    if not rule.searched:
        return best
    weights = np.ones(values.shape[1], np.float32) if importance is None else importance
    least = _error(values, best, weights)
    for shrink in np.linspace(1, SMALLEST_SHRINK, SHRINK_STEPS, dtype=np.float32)[1:]:
        tried = _grid(values, rule, shrink)
        error = _error(values, tried, weights)
        better = error < least
        best = Grid(rule, np.where(better, tried.scales, best.scales), np.where(better, tried.zeros, best.zeros))
        least = np.where(better, error, least)
    return best


def _grid(values: F32Array, rule: GridRule, shrink: np.float32) -> Grid:
    if rule.symmetric:
        steps = np.abs(values).max(axis=1) * shrink / np.float32(rule.middle - 0.5)
        return Grid(rule, _half(steps), np.full(len(values), rule.middle, np.float32))
    low, high = np.minimum(values.min(axis=1), 0) * shrink, np.maximum(values.max(axis=1), 0) * shrink
    scales = _half((high - low) / np.float32(rule.top))
    zeros: F32Array = np.clip(np.rint(-low / scales), np.float32(0), np.float32(rule.top))
    return Grid(rule, scales, zeros)


def _half(scales: F32Array) -> F32Array:
    """Returns the scales rounded to float16, which the formats store."""
    rounded: F32Array = np.maximum(scales, _LEAST_SCALE).astype(np.float16).astype(np.float32)
    return rounded


def _error(values: F32Array, grid: Grid, weights: F32Array) -> F32Array:
    difference = grid.values(grid.codes(values)) - values
    found: F32Array = (difference * difference) @ weights
    return found
