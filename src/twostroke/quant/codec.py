"""float32 matrices to packed weights: the definition that native `ts_pack` repeats bit for bit.

All arithmetic is float32, without fused operations, in the order written here. Per row and group of `group` columns,
with amax the largest |w| (a group with amax < 2^-100 becomes zeros with scale 0):

    int8   scale = amax / 127 rounded up to bf16, so that nothing is clipped but by one rounding;
           q = round half to even of w * (1 / scale), in [-127, 127].
    int4   twelve scales are tried, -extreme / c for c = 7, 7.25 ... 9.75, rounded to the nearest bf16, where extreme is
           the value of largest magnitude (the smallest on a tie), which so lands near q = -8: scales may be negative.
           q = round half to even of w * (1 / scale), in [-8, 7]. The first scale with the smallest squared error wins;
           the error is summed over the columns from left to right.

Knows: rounding rules.
Must not know: files, models, kernels.
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
    pack_floats,
    pack_integers,
)
from twostroke.spec.formats import WeightFormat, WeightKind

ALIGNMENT_BYTES = 64
"""Packed data starts at a multiple of this: one cache line, one AVX-512 register."""

INT4_DIVISORS: tuple[float, ...] = tuple(7 + i / 4 for i in range(12))
"""Where the scale search puts a group's extreme value, in units of q; beyond 8 it is clipped for the others' sake."""

_ZERO_BELOW = np.float32(2.0**-100)
_LIMIT = np.float32(2.0**60)  # squared errors of a group stay finite below it


def pack_weight(values: F32Array, weight_format: WeightFormat, bias: F32Array | None = None) -> PackedWeight:
    """Round a (rows, columns) float32 matrix to `weight_format` and pack it; bias (rows,) float32 is kept as it is.

    Raises ValueError for an empty matrix and for values that are NaN, infinite or of magnitude 2^60 and more.
    """
    values = np.ascontiguousarray(values, dtype=np.float32)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"a weight must be a matrix with at least one element, not of shape {values.shape}")
    _refuse_unusable(values)
    rows, columns = values.shape
    if weight_format.kind in (WeightKind.F32, WeightKind.BF16):
        return PackedWeight(weight_format, rows, columns, _aligned(pack_floats(values, weight_format)), bias=bias)
    quantize = quantize_int8 if weight_format.kind is WeightKind.INT8 else quantize_int4
    q, scales = quantize(values, weight_format.group)
    data, packed_scales = pack_integers(q, scales, weight_format)
    return PackedWeight(weight_format, rows, columns, _aligned(data), packed_scales, bias)


def quantize_int8(values: F32Array, group: int) -> tuple[NDArray[np.int8], U16Array]:
    """(rows, columns) float32 -> q (rows, padded columns) int8 and scales (rows, groups) bf16 bits."""
    groups = _grouped(values, group)
    amax = np.max(np.abs(groups), axis=-1)
    usable = amax >= _ZERO_BELOW
    bits = _round_up_to_bf16(np.where(usable, amax / np.float32(127), np.float32(0)))
    q = _round(groups, bf16_to_f32(bits), -127, 127)
    return q.astype(np.int8).reshape(values.shape[0], -1), bits


def quantize_int4(values: F32Array, group: int) -> tuple[NDArray[np.int8], U16Array]:
    """(rows, columns) float32 -> q (rows, padded columns) int8 in [-8, 7] and scales (rows, groups) bf16 bits."""
    groups = _grouped(values, group)
    low, high = np.min(groups, axis=-1), np.max(groups, axis=-1)
    extreme: F32Array = np.where(-low >= high, low, high)
    extreme = np.where(np.abs(extreme) >= _ZERO_BELOW, extreme, np.float32(0))
    best_bits = np.zeros(extreme.shape, np.uint16)
    best_error = np.full(extreme.shape, np.inf, np.float32)
    for divisor in INT4_DIVISORS:
        bits = f32_to_bf16(-extreme / np.float32(divisor))
        error = _squared_error(groups, bf16_to_f32(bits))
        better = error < best_error
        best_bits = np.where(better, bits, best_bits)
        best_error = np.where(better, error, best_error)
    best_bits = np.where(extreme == 0, np.uint16(0), best_bits)
    q = _round(groups, bf16_to_f32(best_bits), -8, 7)
    return q.astype(np.int8).reshape(values.shape[0], -1), best_bits


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
    """(rows, columns) -> (rows, groups, group), columns padded with zeros."""
    rows, columns = values.shape
    full = np.zeros((rows, -(-columns // group) * group), np.float32)
    full[:, :columns] = values
    return full.reshape(rows, -1, group)


def _round_up_to_bf16(values: F32Array) -> U16Array:
    """The smallest bf16 that is not below each value >= 0."""
    return ((values.view(np.uint32) + np.uint32(0xFFFF)) >> np.uint32(16)).astype(np.uint16)


def _inverse(scales: F32Array) -> F32Array:
    return np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales != 0)


def _round(groups: F32Array, scales: F32Array, low: int, high: int) -> F32Array:
    q: F32Array = np.clip(np.rint(groups * _inverse(scales)[..., None]), np.float32(low), np.float32(high))
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
    """The same bytes at an address that is a multiple of ALIGNMENT_BYTES."""
    room = np.empty(data.size + ALIGNMENT_BYTES, np.uint8)
    start = -room.ctypes.data % ALIGNMENT_BYTES
    aligned = room[start : start + data.size]
    aligned[...] = data
    return aligned
