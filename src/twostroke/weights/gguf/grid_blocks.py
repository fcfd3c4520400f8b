"""Decodes ggml's I types below four bits: codes are looked up in grids of eight or four, each with its sign.

Layouts: ggml-common.h and ggml-quants.c of llama.cpp; tests compare every value with the `gguf` package's dequantizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.code_tables import I8Array
from twostroke.ops.operands import F32Array, U8Array, U16Array
from twostroke.ops.stored_values import I16Array, StoredValues
from twostroke.weights.gguf.bits import fields, halves
from twostroke.weights.gguf.grids import grid

U32Array = NDArray[np.uint32]

EIGHTH, QUARTER = np.float32(0.125), np.float32(0.25)


def _words(raw: U8Array) -> U32Array:
    return np.ascontiguousarray(raw).view(np.uint32)


def _shorts(raw: U8Array) -> U16Array:
    return np.ascontiguousarray(raw).view(np.uint16)


def _seven_bit_signs() -> U8Array:
    """Returns a byte of eight signs for each 7-bit code: the code has seven of them, and the eighth makes the number of
    ones even."""
    seven = np.arange(128, dtype=np.uint8)
    odd = np.unpackbits(seven[:, None], axis=1).sum(axis=1).astype(np.uint8) & np.uint8(1)
    signs: U8Array = seven | (odd << np.uint8(7))
    return signs


EVEN_SIGNS = _seven_bit_signs()


def _with_signs(magnitudes: I8Array, signs: U8Array) -> I8Array:
    """Applies signs. magnitudes (n, ...), signs (n, k) bytes in which each bit belongs to one element, the lowest first
    -> (n, 256)."""
    negative = np.unpackbits(np.ascontiguousarray(signs), axis=-1, bitorder="little").reshape(len(signs), -1)
    flat = magnitudes.reshape(len(signs), -1)
    return np.where(negative == 1, -flat, flat)


def _odd(multipliers: NDArray[Any]) -> I16Array:
    """Returns 2 s + 1 for each stored number s: these odd numbers multiply a block's scale."""
    return multipliers.astype(np.int16) * 2 + 1


def _four_signs(words: U32Array) -> U8Array:
    """Converts (n, k) words to (n, 4 k) bytes of signs, from the words' four fields of 7 bits."""
    shifts = np.array([0, 7, 14, 21], np.uint32)
    signs: U8Array = EVEN_SIGNS[(words[:, :, None] >> shifts & np.uint32(127)).reshape(len(words), -1)]
    return signs


def _iq2_xxs(raw: U8Array) -> StoredValues:
    words = _words(raw[:, 2:]).reshape(-1, 8, 2)
    places = np.ascontiguousarray(words[:, :, 0]).view(np.uint8)
    codes = _with_signs(grid("IQ2_XXS")[places], _four_signs(words[:, :, 1]))
    return StoredValues(codes, halves(raw[:, :2]) * EIGHTH, _odd(words[:, :, 1] >> 28))


def _scale_nibbles(raw: U8Array) -> I16Array:
    return _odd(fields(raw[:, :, None], 4).reshape(len(raw), -1))


def _iq2_xs(raw: U8Array) -> StoredValues:
    places = _shorts(raw[:, 2:66])
    codes = _with_signs(grid("IQ2_XS")[places & 511], EVEN_SIGNS[places >> 9])
    return StoredValues(codes, halves(raw[:, :2]) * EIGHTH, _scale_nibbles(raw[:, 66:]))


def _iq2_s(raw: U8Array) -> StoredValues:
    high = fields(raw[:, 66:74, None], 2).reshape(-1, 32).astype(np.uint16)
    codes = _with_signs(grid("IQ2_S")[raw[:, 2:34] | high << 8], raw[:, 34:66])
    return StoredValues(codes, halves(raw[:, :2]) * EIGHTH, _scale_nibbles(raw[:, 74:]))


def _iq3_xxs(raw: U8Array) -> StoredValues:
    words = _words(raw[:, 66:])
    codes = _with_signs(grid("IQ3_XXS")[raw[:, 2:66]], _four_signs(words))
    return StoredValues(codes, halves(raw[:, :2]) * QUARTER, _odd(words >> 28))


def _iq3_s(raw: U8Array) -> StoredValues:
    high = np.unpackbits(np.ascontiguousarray(raw[:, 66:74]), axis=1, bitorder="little").astype(np.uint16)
    codes = _with_signs(grid("IQ3_S")[raw[:, 2:66] | high << 8], raw[:, 74:106])
    return StoredValues(codes, halves(raw[:, :2]), _scale_nibbles(raw[:, 106:]))


def _shifted(codes: I8Array, negative: NDArray[np.bool_]) -> I8Array:
    """Adds 1/8 to all codes of a group of eight, or subtracts it. codes: (n, 32, 8) with the values -1, 0, 1. negative:
    (n, 32), true where it is subtracted. Returns the results times 8, (n, 256)."""
    moved = codes * np.int8(8) + np.where(negative, np.int8(-1), np.int8(1))[:, :, None]
    return moved.reshape(len(codes), 256)


def _iq1_s(raw: U8Array) -> StoredValues:
    words = _shorts(raw[:, 34:])
    high = (words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16) & np.uint16(7)).reshape(-1, 32)
    negative = np.repeat(words & np.uint16(0x8000) != 0, 4, axis=1)
    codes = _shifted(grid("IQ1_S")[raw[:, 2:34] | high << 8], negative)
    return StoredValues(codes, halves(raw[:, :2]) * EIGHTH, _odd(words >> 12 & np.uint16(7)))


def _iq1_m(raw: U8Array) -> StoredValues:
    """Decodes IQ1_M, where the four highest bits of each of four words form the scale."""
    words = _shorts(raw[:, 48:])
    bits = np.bitwise_or.reduce((words & np.uint16(0xF000)) >> np.array([12, 8, 4, 0], np.uint16), axis=1)
    scales: F32Array = bits.astype(np.uint16).view(np.float16).astype(np.float32)[:, None]
    multipliers = (words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16) & np.uint16(7)).reshape(-1, 16)
    fours = fields(raw[:, 32:48, None], 4).reshape(-1, 32)
    places = raw[:, :32] | (fours & 7).astype(np.uint16) << 8
    return StoredValues(_shifted(grid("IQ1_S")[places], fours & 8 != 0), scales * EIGHTH, _odd(multipliers))


GRID_DECODERS: dict[str, Callable[[U8Array], StoredValues]] = {
    "IQ2_XXS": _iq2_xxs, "IQ2_XS": _iq2_xs, "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs, "IQ3_S": _iq3_s, "IQ1_S": _iq1_s, "IQ1_M": _iq1_m,
}  # fmt: skip
