"""Rounds float32 groups to codes of 6 bits with whole multipliers. This is the definition that native packing repeats
bit for bit.

The layout is that of SUPER6 (ops/stored_layout.py). A weight is (scale * m) * q, with q in [-32, 31]. 16 columns share
a whole m in [-128, 127], and 256 share a float16 scale. All arithmetic is float32, without fused operations, sums from
left to right:

    16 columns   e is their value of largest magnitude, the negative on a tie, or 0 below 2^-100; y = w * (1 / e).
                 For each t of TRIES (codes that e may get), q = round half to even of y * t, clipped; the first t with
                 the largest sum(y q) * sum(y q) / sum(q q) wins. step = e * (sum(y q) / sum(q q)), or 0 where e is 0.
    a group      d is its step of largest magnitude, the negative one on a tie. scale = d / -128, its magnitude clipped
                 to that of float16's smallest and largest numbers and rounded up to float16; 0 where d is 0.
    16 columns   m is round half to even of step * (1 / scale), clipped. One less, m and one more are tried, clipped:
                 q = round half to even of w * (1 / (m * scale)), clipped; the first with the smallest squared error
                 wins. m is 0 where step is 0.

So a multiplier is fitted by least squares, and then rounded to the whole number with the smallest error of the codes.
"""

from __future__ import annotations

import numpy as np

from twostroke.ops.operands import F32Array
from twostroke.ops.stored_values import StoredValues
from twostroke.types.spec.formats import STORED_GROUP, SUBGROUP_COLUMNS

TRIES: tuple[float, ...] = (-32.0, -31.0, -30.0, -29.0, 31.0, 30.0, 29.0, 28.0)
"""The codes q that the search tries for the largest of 16 columns. They are whole numbers, so that this value has
hardly any rounding error."""

LOW, HIGH = np.float32(-32), np.float32(31)
LARGEST_MULTIPLIER = 128

_ZERO_BELOW = np.float32(2.0**-100)
_SMALLEST_HALF, _LARGEST_HALF = np.float32(2.0**-24), np.float32(65504)


def quantize_super6(values: F32Array) -> StoredValues:
    """Rounds (rows, columns) float32. Columns are padded with zeros to whole groups of 256. Codes are (rows, padded
    columns), multipliers (rows, padded columns / 16), and scales (rows, groups)."""
    rows, columns = values.shape
    full = np.zeros((rows, -(-columns // STORED_GROUP) * STORED_GROUP), np.float32)
    full[:, :columns] = values
    parts = full.reshape(rows, -1, STORED_GROUP // SUBGROUP_COLUMNS, SUBGROUP_COLUMNS)
    steps = _fitted(parts)
    scales = _half(_extreme(steps) / np.float32(-LARGEST_MULTIPLIER))
    multipliers = _multipliers(parts, steps, scales)
    codes = _rounded(parts, multipliers * scales[..., None])
    return StoredValues(
        codes.reshape(rows, -1).astype(np.int8), scales, multipliers.reshape(rows, -1).astype(np.int16)
    )


def _extreme(values: F32Array) -> F32Array:
    """Returns the value of largest magnitude along the last axis, the smallest value on a tie."""
    low, high = values.min(axis=-1), values.max(axis=-1)
    found: F32Array = np.where(-low >= high, low, high)
    return found


def _fitted(parts: F32Array) -> F32Array:
    """Returns for each 16 columns the scale (called step in the module) with which codes fit them best. parts: (...,
    16). The result is (...)."""
    extreme = _extreme(parts)
    extreme = np.where(np.abs(extreme) >= _ZERO_BELOW, extreme, np.float32(0))
    shares = parts * _inverse(extreme)[..., None]
    best, ratio = np.full(extreme.shape, -1, np.float32), np.zeros_like(extreme)
    for tried in TRIES:
        products, squares = np.zeros_like(extreme), np.zeros_like(extreme)
        for k in range(SUBGROUP_COLUMNS):
            share = shares[..., k]
            q = np.clip(np.rint(share * np.float32(tried)), LOW, HIGH)
            products = products + share * q
            squares = squares + q * q
        own = products * _inverse(squares)
        gain = products * own
        better = gain > best
        best, ratio = np.where(better, gain, best), np.where(better, own, ratio)
    return extreme * ratio


def _half(values: F32Array) -> F32Array:
    """Returns the nearest float16 whose magnitude is not smaller. Values that are too large become the largest float16.
    """
    magnitudes = np.clip(np.abs(values), _SMALLEST_HALF, _LARGEST_HALF)
    halves = magnitudes.astype(np.float16)
    bits = halves.view(np.uint16) + (halves.astype(np.float32) < magnitudes)
    found = bits.astype(np.uint16).view(np.float16).astype(np.float32)
    return np.where(values == 0, np.float32(0), np.copysign(found, values))


def _multipliers(parts: F32Array, steps: F32Array, scales: F32Array) -> F32Array:
    """Returns the whole multiplier of each 16 columns, (rows, groups, n). parts: the weights, (rows, groups, n, 16).
    steps: the least-squares steps of each 16 columns, (rows, groups, n), before they are rounded to scale * multiplier.
    scales: (rows, groups)."""
    nearest = np.rint(np.clip(steps * _inverse(scales)[..., None], -LARGEST_MULTIPLIER, LARGEST_MULTIPLIER - 1))
    best, best_error = np.zeros_like(steps), np.full(steps.shape, np.inf, np.float32)
    for change in (-1, 0, 1):
        tried = np.clip(nearest + np.float32(change), -LARGEST_MULTIPLIER, LARGEST_MULTIPLIER - 1)
        step = tried * scales[..., None]
        codes, error = _rounded(parts, step), np.zeros_like(steps)
        for k in range(SUBGROUP_COLUMNS):
            difference = parts[..., k] - codes[..., k] * step
            error = error + difference * difference
        better = error < best_error
        best, best_error = np.where(better, tried, best), np.where(better, error, best_error)
    return np.where(steps == 0, np.float32(0), best)


def _rounded(parts: F32Array, steps: F32Array) -> F32Array:
    q: F32Array = np.clip(np.rint(parts * _inverse(steps)[..., None]), LOW, HIGH)
    return q


def _inverse(values: F32Array) -> F32Array:
    return np.divide(np.float32(1), values, out=np.zeros_like(values), where=values != 0)
