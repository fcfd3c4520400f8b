"""Packed weights that keep the codes and scales of a file: layouts, packing and unpacking without loss.

    value = (scale * multiplier) * code - minimum_scale * minimum

Panels of 64 rows; a panel is groups of 256 columns (the last may be shorter), each in one piece:

    FLAT8, FLAT8_MIN    scales (columns / 32, 64) float16; for _MIN as many minima, float16; then codes
    FLAT4, FLAT4_MIN    scales (and minima) of FLAT8 and FLAT8_MIN; then nibbles: the code + 8, for _MIN the code
    FLAT4_IQ            scales of FLAT8; then nibbles: the code's index in IQ4_CODES
    SUPER4_IQ           scales (64) float16, multipliers (8, 64) int8; then nibbles: the code's index in IQ4_CODES
    FLAT5, FLAT5_MIN    scales (and minima) of FLAT8 and FLAT8_MIN; then blocks of 32 columns, each the fifth bits and
                        then nibbles: the code + 16, for _MIN the code
    SUPER8, SUPER8_MIN  scales (64) float16; for _MIN minimum scales (64) float16; multipliers (16, 64) int8; for _MIN
                        minima (16, 64) uint8; then codes
    SUPER4_MIN          scales of SUPER8_MIN, only 8 multipliers and minima, for 32 columns each; then nibbles: codes
    SUPER4_16, SUPER4_MIN_16  scales of SUPER8 and SUPER8_MIN; then nibbles: the code + 8, for _MIN the code
    SUPER2, SUPER2_MIN  scales of SUPER8 and SUPER8_MIN; then blocks of 16 columns: two bits of each column,
                        packed as high bits (below): the code + 1, for _MIN the code
    SUPER3              scales of SUPER8; then blocks of 16 columns: the two low bits of the code + 4, packed as high
                        bits, then 16 bits for each of 64 rows: bit 4 i + q is the third bit of column 4 q + i
    SUPER5_MIN          scales of SUPER4_MIN; then blocks of 32 columns: the fifth bits, then nibbles
    SUPER6, SUPER6_MIN  scales of SUPER8 and SUPER8_MIN; then blocks of 16 columns: the two highest bits of code + 32,
                        then nibbles
    AFFINE4_g           scales (columns / g, 64) float32, as many minima, float32; then nibbles: the code
    AFFINE8_g           scales and minima of AFFINE4_g; then codes
    E2M1_g              scales (columns / g, 64) float32; then nibbles: the bits of the 4-bit float; twice its value is
                        the code (0, 1, 2, 3, 4, 6, 8 or 12; the highest bit is the sign)

Here "scales of SUPER8" includes multipliers and minima. The high bits of a block, b for each column, are 4 bytes for
each of 64 rows. Those of column 4 q + i are in byte i, from its bit b q on. Codes are laid out as int8's (operands.py),
nibbles as int4's elements. Columns of affine kinds are a multiple of g, those of super kinds a multiple of 256 in
files. Where floats are rounded to a super kind, the last group may be shorter. Sums are float32, from left to right;
the plain C++ rounds a fma's product as well. Each group of 256 columns has a sum of its own, which begins with 0.

A subgroup is the columns that share factor = scale * multiplier and offset = minimum_scale * minimum.
    FLAT, E2M1: 32 columns, one or two subgroups, share a scale x_scale of the activations, as in ggml's Q8_0
        for each subgroup: sum = fma(float(whole sum), factor * x_scale, sum)
                           sum = fma(-offset, float(sum of the rounded activations) * x_scale, sum)
        total = total + sum
    other kinds: the columns of a group share a scale x_scale of the activations
        for each subgroup: sum = fma(float(whole sum), factor, sum)
                           sum = fma(-offset, float(sum of the rounded activations), sum)
        total = fma(sum, x_scale, total)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.code_tables import E2M1_CODES, IQ4_CODES, I8Array, e2m1_bits, iq4_numbers
from twostroke.ops.operands import F32Array, PackedWeight, U8Array, nibbles_of, nibbles_to
from twostroke.ops.stored_values import I16Array, StoredValues
from twostroke.types.spec.formats import PANEL_ROWS, STEP_COLUMNS, STORED_GROUP, WeightFormat, WeightKind, padded_rows

_OFFSETS = {
    WeightKind.SUPER2: 1, WeightKind.SUPER3: 4, WeightKind.FLAT4: 8, WeightKind.FLAT5: 16, WeightKind.SUPER4_16: 8,
    WeightKind.SUPER6: 32, WeightKind.SUPER6_MIN: 32,
}  # fmt: skip


_THIRD_PLACES = np.arange(4, dtype=np.uint16)[:, None] + 4 * np.arange(4, dtype=np.uint16)
"""At [q, i], the bit (of SUPER3's 16 bits for a row) that holds the third bit of the code in column 4 q + i."""


def scale_columns(kind: WeightKind) -> int:
    """Returns how many columns share a scale."""
    return STORED_GROUP if kind.is_super else kind.step_columns


def holds_columns(kind: WeightKind, columns: int) -> bool:
    """Returns whether a matrix with `columns` columns can be stored in this kind."""
    return columns % scale_columns(kind) == 0


def canonical(rows: StoredValues, kind: WeightKind) -> StoredValues:
    """Returns the rows with the scales, multipliers and minima that the kind stores. Absent minima become zeros. Raises
    ValueError for values that the kind cannot hold."""
    columns, wide = rows.codes.shape[1], scale_columns(kind)
    same = 1 if kind.is_super else columns // rows.scales.shape[1] // wide  # number of steps that share a file's scale
    if (
        columns % wide
        or rows.scales.shape[1] * wide * same != columns
        or (rows.minimum_scales is not None and not kind.has_minimum)
    ):
        raise ValueError(f"{kind.name} holds one scale for {wide} columns, and minima only if it is AFFINE or _MIN")
    if same > 1:
        rows = _finer(rows, same)
    least = None
    if kind.has_minimum:
        least = np.zeros_like(rows.scales) if rows.minimum_scales is None else rows.minimum_scales
    if not kind.is_super:
        return StoredValues(rows.codes, rows.scales, None, least)
    units = columns // kind.step_columns
    minima = None
    if kind.has_minimum:
        minima = np.zeros((len(rows.codes), units), np.int16) if rows.minima is None else _spread(rows.minima, units)
    ones = np.ones((len(rows.codes), 1), np.int16)
    return StoredValues(
        rows.codes, rows.scales, _spread(ones if rows.multipliers is None else rows.multipliers, units), least, minima
    )


def pack_stored(rows: StoredValues, weight_format: WeightFormat, width: int | None = None) -> U8Array:
    """Packs rows of a matrix, or of whole panels of it, as bytes. width: the matrix's columns, where `rows` has more:
    zeros up to the end of a group. Raises ValueError for values that the kind cannot hold."""
    kind = weight_format.kind
    rows = canonical(rows, kind)
    count, columns = rows.codes.shape
    padded, sub = weight_format.padded_columns(width or columns), kind.step_columns
    columns = min(columns, padded)
    nothing = 1 if kind.is_iq4 else 0  # IQ4's table has no zero, but the scales of padding are zero
    codes = np.full((padded_rows(count), padded), nothing, np.int8)
    codes[:count, :columns] = rows.codes[:, :columns]
    wide = scale_columns(kind)
    pieces: list[tuple[U8Array, int]] = []  # (an array (panels, units, bytes of a unit), the columns of a unit)
    for scales in (rows.scales, rows.minimum_scales):
        if scales is not None:
            kept = scales if kind.has_wide_scales else _half_bits(scales)
            pieces.append((_lanes(kept, -(-padded // wide)), wide))
    for whole, dtype in ((rows.multipliers, np.int8), (rows.minima, np.uint8)):
        if whole is not None:
            pieces.append((_lanes(whole.astype(dtype), padded // sub), sub))
    pieces.append(_codes(codes, kind))
    groups = []
    for first in range(0, padded, STORED_GROUP):
        end = min(first + STORED_GROUP, padded)
        groups += [part[:, first // unit : -(-end // unit)].reshape(len(part), -1) for part, unit in pieces]
    return np.ascontiguousarray(np.concatenate(groups, axis=1)).reshape(-1)


def _codes(codes: I8Array, kind: WeightKind) -> tuple[U8Array, int]:
    if kind.is_e2m1:
        return nibbles_of(e2m1_bits(codes), 4, 8), STEP_COLUMNS
    if kind.is_iq4:
        return nibbles_of(iq4_numbers(codes), 4, 8), STEP_COLUMNS
    full = codes.view(np.uint8) + np.uint8(code_offset(kind))  # as bytes: codes still negative are above 127
    if int(full.max(initial=0)) >> kind.code_bits:
        raise ValueError(f"a code has more than {kind.code_bits} bits")
    if kind.is_plane:
        planes = _planes_of(full & np.uint8(3), kind)
        return (np.concatenate((planes, _thirds_of(full)), axis=2) if kind.has_thirds else planes), _block_columns(kind)
    if kind.high_bits:
        columns = _block_columns(kind)
        nibbles = nibbles_of(full & np.uint8(15), 4, columns // 8)
        return np.concatenate((_planes_of(full >> np.uint8(4), kind), nibbles), axis=2), columns
    if kind.has_nibbles:
        return nibbles_of(full, 4, 8), STEP_COLUMNS
    quads = np.ascontiguousarray(full.view(np.uint32).reshape(-1, PANEL_ROWS, codes.shape[1] // 4).transpose(0, 2, 1))
    return quads.view(np.uint8).reshape(len(quads), quads.shape[1], -1), 4


def code_offset(kind: WeightKind) -> int:
    """Returns the number that is added to a code of the kind before it is packed, so that it is not negative."""
    if kind.code_bits == 8:
        return 128
    return _OFFSETS.get(kind, 0)


def _block_columns(kind: WeightKind) -> int:
    """Returns how many columns are a block: their high bits (`high_bits` each) fill 4 bytes for each row."""
    return 32 // kind.high_bits


def _planes_of(high: U8Array, kind: WeightKind) -> U8Array:
    """Packs high bits (N, columns), C-contiguous bytes, as (panels, blocks, 256): 4 bytes for each of 64 rows."""
    quads = high.view(np.uint32).reshape(len(high) // PANEL_ROWS, PANEL_ROWS, -1, 8 // kind.high_bits)
    planes = quads[..., 0].copy()
    for index in range(1, quads.shape[3]):
        planes |= quads[..., index] << np.uint32(index * kind.high_bits)
    blocks = np.ascontiguousarray(planes.transpose(0, 2, 1))
    return blocks.view(np.uint8).reshape(len(blocks), blocks.shape[1], -1)


def _planes_to(planes: U8Array, kind: WeightKind) -> U8Array:
    """Unpacks the result of `_planes_of` to the high bits (N, columns), a byte each."""
    shifts = np.arange(8 // kind.high_bits, dtype=np.uint8) * np.uint8(kind.high_bits)
    panels, blocks, _ = planes.shape
    bytes_of = planes.reshape(panels, blocks, PANEL_ROWS, 1, 4).transpose(0, 2, 1, 3, 4)
    high: U8Array = (bytes_of >> shifts[:, None]) & np.uint8((1 << kind.high_bits) - 1)
    return high.reshape(panels * PANEL_ROWS, -1)


def _thirds_of(full: U8Array) -> U8Array:
    """Packs bit 2 of 3-bit codes (N, columns) as (panels, blocks of 16 columns, 128): 16 bits for each of 64 rows."""
    bits = (full >> np.uint8(2)).reshape(len(full) // PANEL_ROWS, PANEL_ROWS, -1, 4, 4).astype(np.uint16)
    words = np.bitwise_or.reduce(bits << _THIRD_PLACES, axis=(3, 4)).transpose(0, 2, 1)
    return np.ascontiguousarray(words).view(np.uint8)


def _thirds_to(planes: U8Array) -> U8Array:
    """Unpacks the result of `_thirds_of` to (N, columns) numbers: 4 where bit 2 is set, else 0."""
    words = np.ascontiguousarray(planes).view(np.uint16).transpose(0, 2, 1)
    bits = (words[..., None, None] >> _THIRD_PLACES & np.uint16(1)).astype(np.uint8) << np.uint8(2)
    return bits.reshape(words.shape[0] * PANEL_ROWS, -1)


def _finer(rows: StoredValues, times: int) -> StoredValues:
    """Returns rows with each scale and minimum scale repeated `times` times, for a kind whose scales are for fewer
    columns."""
    least = rows.minimum_scales
    return StoredValues(
        rows.codes,
        np.repeat(rows.scales, times, axis=1),
        None,
        None if least is None else np.repeat(least, times, axis=1),
    )


def _half_bits(scales: F32Array) -> NDArray[np.uint16]:
    half = scales.astype(np.float16)
    if not np.array_equal(half.astype(np.float32), scales):
        raise ValueError("a scale is no float16")
    return half.view(np.uint16)


def _spread(whole: I16Array, units: int) -> I16Array:
    return np.repeat(whole, units // whole.shape[1], axis=1)


def _lanes(values: NDArray[np.generic], units: int) -> U8Array:
    """Packs numbers of rows, such as scales, (rows, <= units), as (panels, units, bytes): `units` numbers for each row,
    64 rows next to each other. Missing rows and numbers become zeros."""
    full = np.zeros((padded_rows(len(values)), units), values.dtype)
    full[: len(values), : values.shape[1]] = values[:, :units]
    lanes = np.ascontiguousarray(full.reshape(-1, PANEL_ROWS, units).transpose(0, 2, 1))
    return lanes.view(np.uint8).reshape(len(lanes), units, -1)


def stored_values(weight: PackedWeight) -> StoredValues:
    """Unpacks a weight to codes and scales, with all padded columns. SUPER kinds, those with multipliers, are padded
    with zeros to whole groups of 256."""
    kind, padded = weight.format.kind, weight.format.padded_columns(weight.columns)
    panels = padded_rows(weight.rows) // PANEL_ROWS
    sub, kinds = kind.step_columns, 2 if kind.has_minimum else 1
    scale_type = np.dtype(np.float32 if kind.has_wide_scales else np.float16)
    units: list[tuple[int, np.dtype[Any]]] = [(scale_columns(kind), scale_type)] * kinds
    if kind.is_super:
        units += [(sub, np.dtype(np.int8)), (sub, np.dtype(np.uint8))][:kinds]
    data = weight.data.reshape(panels, -1)
    found: list[list[NDArray[Any]]] = [[] for _ in units]
    codes, at = [], 0
    for first in range(0, padded, STORED_GROUP):
        columns = min(STORED_GROUP, padded - first)
        for place, (unit, dtype) in enumerate(units):
            size = -(-columns // unit) * PANEL_ROWS * dtype.itemsize
            part = np.ascontiguousarray(data[:, at : at + size]).view(dtype)
            found[place].append(
                part.reshape(panels, -1, PANEL_ROWS).transpose(0, 2, 1).reshape(panels * PANEL_ROWS, -1)
            )
            at += size
        size = columns * PANEL_ROWS * kind.code_bits // 8
        packed = data[:, at : at + size]
        at += size
        if kind.is_plane:
            planes = packed.reshape(panels, columns // _block_columns(kind), -1)
            low = _planes_to(planes[:, :, : 4 * PANEL_ROWS], kind)
            codes.append(
                (low | _thirds_to(planes[:, :, 4 * PANEL_ROWS :]) if kind.has_thirds else low).astype(np.int16)
            )
        elif kind.high_bits:
            blocks = packed.reshape(panels, columns // _block_columns(kind), -1)
            low = nibbles_to(blocks[:, :, 4 * PANEL_ROWS :], 4, _block_columns(kind) // 8)
            codes.append((low | _planes_to(blocks[:, :, : 4 * PANEL_ROWS], kind) << np.uint8(4)).astype(np.int16))
        elif kind.has_nibbles:
            codes.append(nibbles_to(packed.reshape(panels, columns // STEP_COLUMNS, -1), 4, 8).astype(np.int16))
        else:
            quads = packed.reshape(panels, -1, PANEL_ROWS, 4).transpose(0, 2, 1, 3)
            codes.append(quads.reshape(panels * PANEL_ROWS, -1).astype(np.int16))
    joined = np.concatenate(codes, axis=1)
    whole = _meant(joined, kind)[: weight.rows]
    parts = [np.concatenate(each, axis=1)[: weight.rows] for each in found]
    scales = [part.astype(np.float32) for part in parts[:kinds]]
    fine = [part.astype(np.int16) for part in parts[kinds:]]
    if kind.is_super:
        whole, *fine = (_to_the_end(part, padded) for part in (whole, *fine))
    return StoredValues(
        whole,
        scales[0],
        fine[0] if fine else None,
        scales[1] if kind.has_minimum else None,
        fine[1] if len(fine) > 1 else None,
    )


def _to_the_end(part: Any, padded: int) -> Any:
    """Adds zeros to codes, multipliers or minima of `padded` columns, up to a multiple of 256 columns."""
    missing = part.shape[1] * (-padded % STORED_GROUP) // padded
    return np.pad(part, ((0, 0), (0, missing)))


def _meant(packed: I16Array, kind: WeightKind) -> I8Array:
    """Returns the codes of unsigned packed numbers: entries of a table (E2M1, IQ4), else number - offset."""
    if kind.is_e2m1 or kind.is_iq4:
        return (E2M1_CODES if kind.is_e2m1 else IQ4_CODES)[packed]
    return (packed - code_offset(kind)).astype(np.int8)


def stored_product(x_q: I8Array, x_scales: F32Array, weight: PackedWeight) -> F32Array:
    """Returns the product (T, rows) of rounded activations and a stored weight; see the module. x_q: (T, padded
    columns). x_scales: (T, one for each `activation_columns`). Each product is rounded before it is added, because
    NumPy has no fma."""
    values = stored_values(weight)
    steps, offsets = values.steps(), values.offsets()
    sub, wide = values.codes.shape[1] // steps.shape[1], weight.format.activation_columns
    one = np.ones((len(x_q), 1), np.float32)
    total = np.zeros((len(x_q), weight.rows), np.float32)
    for first in range(0, x_q.shape[1], STORED_GROUP):
        inner = np.zeros_like(total)
        for k in range(first, min(first + STORED_GROUP, x_q.shape[1]), sub):
            fine = x_scales[:, k // wide, None] if wide < STORED_GROUP else one
            rounded = x_q[:, k : k + sub].astype(np.float64)
            integers = (rounded @ values.codes[:, k : k + sub].astype(np.float64).T).astype(np.float32)
            inner += integers * (steps[:, k // sub] * fine)
            if offsets is not None:
                inner -= rounded.sum(axis=1).astype(np.float32)[:, None] * fine * offsets[:, k // sub]
        total += inner * (one if wide < STORED_GROUP else x_scales[:, first // STORED_GROUP, None])
    return total
