"""Rounds float32 matrices to packed weights. This is the definition that native `ts_pack` repeats bit for bit.

All arithmetic is float32, without fused operations, in the order written here. Per row and group of `group` columns,
with amax the largest |w| (a group with amax < 2^-100 becomes zeros with scale 0):

    int8   scale = amax / 127 rounded up to bf16, so that only the rounding of 1 / scale can make clipping necessary;
           q = round half to even of w * (1 / scale), in [-127, 127].
    int4   a scale for the group and a whole multiplier m in [1, 15] for each 16 columns; the weight is (q * m) * scale.
           Four scales are tried, -extreme / (15 * c) for c = 7, 7.5, 8, 8.5, rounded to the nearest bf16, where extreme
           is the group's value of largest magnitude (the smallest on a tie). So the extreme itself gets a q near -8,
           and scales may be negative. For each scale and 16 columns, with amax their largest |w|, three multipliers are
           tried: the nearest to amax * (1 / |scale|) / c, one less and one more, clipped to [1, 15]; step = m * scale;
           q = round half to even of w * (1 / step), in [-8, 7]; the first with the smallest squared error wins, the
           error summed over the columns from left to right. The first scale with the smallest sum of errors, summed
           from left to right, wins. A group of zeros has multipliers 0 and q 0.

    SUPER6 the rules are in quant/super6.py.

In formats with rotated columns, the matrix is rotated by ops/rotation.py before it is rounded.

Adapters' int8 has a scale for each column of the whole matrix in place of each row's groups; `ts_pack` does not make
this format.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import (
    F32Array,
    PackedWeight,
    U8Array,
    U16Array,
    bf16_to_f32,
    f32_to_bf16,
    pack_columns,
    pack_floats,
    pack_integers,
)
from twostroke.ops.quant.super6 import quantize_super6
from twostroke.ops.rotation import rotated_weights
from twostroke.ops.stored_layout import pack_stored
from twostroke.types.spec.formats import STEP_COLUMNS, SUBGROUP_COLUMNS, WeightFormat, WeightKind

ALIGNMENT_BYTES = 64
"""The alignment of packed data, in bytes: one cache line, one AVX-512 register."""

INT4_DIVISORS: tuple[float, ...] = (7.0, 7.5, 8.0, 8.5)
"""The values of |q| that the search for a group's scale tries for the group's largest number. With 8.5 that number is
clipped to 8, and the other numbers get a finer scale."""

LARGEST_MULTIPLIER = np.float32(15)

_ZERO_BELOW = np.float32(2.0**-100)
_LIMIT = np.float32(2.0**60)  # the squared errors of a group stay finite below this value


def pack_weight(values: F32Array, weight_format: WeightFormat, bias: F32Array | None = None) -> PackedWeight:
    """Rounds a (rows, columns) float32 matrix to `weight_format` and packs it. bias: (rows,) float32, kept as it is.

    Raises ValueError for an empty matrix, and for values that are NaN, infinite or of magnitude 2^60 and more.
    """
    values = np.ascontiguousarray(values, dtype=np.float32)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"a weight must be a matrix with at least one element, not of shape {values.shape}")
    _refuse_unusable(values)
    rows, columns = values.shape
    if weight_format.kind.is_float:
        return PackedWeight(weight_format, rows, columns, _aligned(pack_floats(values, weight_format)), bias=bias)
    if weight_format.has_column_scales:
        q, scales = quantize_columns(values)
        return PackedWeight(weight_format, rows, columns, _aligned(pack_columns(q)), scales, bias)
    multipliers = None
    values = rotated_weights(values) if weight_format.rotated else values
    if weight_format.kind is WeightKind.SUPER6:
        data = pack_stored(quantize_super6(values), weight_format, columns)
        return PackedWeight(weight_format, rows, columns, _aligned(data), bias=bias)
    if weight_format.kind is WeightKind.INT8:
        q, scales = quantize_int8(values, weight_format.group)
    else:
        q, multipliers, scales = quantize_int4(values, weight_format.group)
    data, packed_scales = pack_integers(q, multipliers, scales, weight_format)
    return PackedWeight(weight_format, rows, columns, _aligned(data), packed_scales, bias)


def quantize_int8(values: F32Array, group: int) -> tuple[NDArray[np.int8], U16Array]:
    """Rounds (rows, columns) float32 to q (rows, padded columns) int8 and scales (rows, groups) bf16 bits."""
    groups = _grouped(values, group)
    amax = np.max(np.abs(groups), axis=-1)
    usable = amax >= _ZERO_BELOW
    bits = _round_up_to_bf16(np.where(usable, amax / np.float32(127), np.float32(0)))
    q = _round(groups, bf16_to_f32(bits)[..., None], -127, 127)
    return _flat(q, values).astype(np.int8), bits


def quantize_columns(values: F32Array) -> tuple[NDArray[np.int8], U16Array]:
    """Rounds (rows, columns) float32, all finite, to q (rows, columns) int8 and scales (columns,) bf16 bits."""
    amax = np.max(np.abs(values), axis=0)
    bits = _round_up_to_bf16(np.where(amax >= _ZERO_BELOW, amax / np.float32(127), np.float32(0)))
    return _round(values, bf16_to_f32(bits), -127, 127).astype(np.int8), bits


def quantize_int4(values: F32Array, group: int) -> tuple[NDArray[np.int8], U8Array, U16Array]:
    """Rounds (rows, columns) float32 to q (rows, padded columns) int8 in [-8, 7], multipliers (rows, padded columns /
    16) in [0, 15], and scales (rows, groups) bf16 bits."""
    groups = _grouped(values, group)
    low, high = np.min(groups, axis=-1), np.max(groups, axis=-1)
    extreme: F32Array = np.where(-low >= high, low, high)
    extreme = np.where(np.abs(extreme) >= _ZERO_BELOW, extreme, np.float32(0))
    parts = groups.reshape(*groups.shape[:2], -1, SUBGROUP_COLUMNS)
    best_bits = np.zeros(extreme.shape, np.uint16)
    best_multipliers = np.zeros(parts.shape[:3], np.float32)
    best_error = np.full(extreme.shape, np.inf, np.float32)
    for divisor in INT4_DIVISORS:
        bits = f32_to_bf16(-extreme / (LARGEST_MULTIPLIER * np.float32(divisor)))
        multipliers, error = _multipliers(parts, bf16_to_f32(bits), np.float32(divisor))
        better = error < best_error
        best_bits = np.where(better, bits, best_bits)
        best_multipliers = np.where(better[..., None], multipliers, best_multipliers)
        best_error = np.where(better, error, best_error)
    best_bits = np.where(extreme == 0, np.uint16(0), best_bits)
    best_multipliers = np.where(extreme[..., None] == 0, np.float32(0), best_multipliers)
    q = _round(parts, (best_multipliers * bf16_to_f32(best_bits)[..., None])[..., None], -8, 7)
    flat_multipliers = np.repeat(best_multipliers, SUBGROUP_COLUMNS, axis=-1).reshape(groups.shape)
    multipliers = _flat(flat_multipliers, values)[:, ::SUBGROUP_COLUMNS]
    return _flat(q, values).astype(np.int8), multipliers.astype(np.uint8), best_bits


def _multipliers(parts: F32Array, scales: F32Array, divisor: np.float32) -> tuple[F32Array, F32Array]:
    """Returns for each 16 columns the int4 multiplier with the smallest squared error, (rows, groups, n), and the sum
    of these errors for each group, (rows, groups). parts: the weights, (rows, groups, n, 16). scales: (rows, groups).
    divisor: the search begins where the largest of the 16 weights gets a code of this magnitude."""
    amax = np.max(np.abs(parts), axis=-1)
    nearest = np.rint(amax * _inverse(np.abs(scales))[..., None] / divisor)
    best = np.zeros_like(amax)
    best_error = np.full(amax.shape, np.inf, np.float32)
    for change in (-1, 0, 1):
        multipliers = np.clip(nearest + np.float32(change), np.float32(1), LARGEST_MULTIPLIER)
        error = _squared_error(parts, multipliers * scales[..., None])
        better = error < best_error
        best = np.where(better, multipliers, best)
        best_error = np.where(better, error, best_error)
    total = np.zeros_like(scales)
    for n in range(parts.shape[2]):
        total = total + best_error[:, :, n]
    return best, total


def _refuse_unusable(values: F32Array) -> None:
    usable = np.abs(values) < _LIMIT
    if usable.all():
        return
    row, column = np.argwhere(~usable)[0]
    raise ValueError(
        f"{int(np.count_nonzero(~usable))} of {values.size} weights are NaN, infinite or beyond 2^60; "
        f"the first is {values[row, column]} at row {row}, column {column}"
    )


def _grouped(values: F32Array, group: int) -> F32Array:
    """Returns (rows, columns) as (rows, groups, group), with columns padded with zeros."""
    rows, columns = values.shape
    full = np.zeros((rows, -(-columns // group) * group), np.float32)
    full[:, :columns] = values
    return full.reshape(rows, -1, group)


def _flat(groups: F32Array, values: F32Array) -> F32Array:
    """Returns `groups` (rows, groups, ...) as (rows, padded columns), without the groups' padding: only the columns of
    `values` (rows, columns) are kept, rounded up to a multiple of 64."""
    rows, columns = values.shape
    return groups.reshape(rows, -1)[:, : -(-columns // STEP_COLUMNS) * STEP_COLUMNS]


def _round_up_to_bf16(values: F32Array) -> U16Array:
    """Returns the smallest bf16 that is not below each value. All values are at least 0."""
    return ((values.view(np.uint32) + np.uint32(0xFFFF)) >> np.uint32(16)).astype(np.uint16)


def _inverse(scales: F32Array) -> F32Array:
    return np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales != 0)


def _round(groups: F32Array, scales: F32Array, low: int, high: int) -> F32Array:
    """Returns each group divided by its scale, rounded to whole numbers from `low` to `high`. scales: broadcast against
    groups."""
    q: F32Array = np.clip(np.rint(groups * _inverse(scales)), np.float32(low), np.float32(high))
    return q


def _squared_error(groups: F32Array, scales: F32Array) -> F32Array:
    inverse = _inverse(scales)
    error = np.zeros_like(scales)
    for k in range(groups.shape[-1]):
        column = groups[..., k]
        q = np.clip(np.rint(column * inverse), np.float32(-8), np.float32(7))
        difference = column - q * scales
        error = error + difference * difference
    return error


def _aligned(data: U8Array) -> U8Array:
    """Returns a copy of the bytes at an address that is a multiple of ALIGNMENT_BYTES."""
    room = np.empty(data.size + ALIGNMENT_BYTES, np.uint8)
    start = -room.ctypes.data % ALIGNMENT_BYTES
    aligned = room[start : start + data.size]
    aligned[...] = data
    return aligned
