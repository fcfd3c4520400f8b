"""Unpacks codes of a few bits in words of 32, lowest bits first, and floats of 8 and 4 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array, U8Array

WORD = 32


def unpacked(words: NDArray[np.uint32], bits: int) -> U8Array:
    """Unpacks (..., w) words to (..., w * 32 / bits) codes of 2, 3, 4, 5, 6 or 8 bits: one stream, lowest bits of the
    first word first. Where bits do not divide 32, w is a multiple of `bits`."""
    words = np.ascontiguousarray(words)
    if bits == 8:
        return words.view(np.uint8)
    if WORD % bits == 0:
        octets = words.view(np.uint8)
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        return ((octets[..., None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(*words.shape[:-1], -1)
    runs = words.reshape(*words.shape[:-1], -1, bits)
    found = np.empty((*runs.shape[:-1], WORD), np.uint8)
    for place in range(WORD):
        word, shift = divmod(place * bits, WORD)
        code = runs[..., word] >> np.uint32(shift)
        if shift + bits > WORD:
            code = code | (runs[..., word + 1] << np.uint32(WORD - shift))
        found[..., place] = code & np.uint32((1 << bits) - 1)
    return found.reshape(*words.shape[:-1], -1)


def words_for(codes: int, bits: int) -> int:
    """Returns the number of words of 32 bits that hold `codes` codes."""
    return -(-codes * bits // WORD)


def _e4m3() -> F32Array:
    codes = np.arange(256)
    exponent, fraction = (codes >> 3) & 15, codes & 7
    normal = (1 + fraction / 8) * 2.0 ** (exponent - 7.0)
    found = np.where(exponent == 0, fraction * 2.0**-9, normal)
    found[(codes & 127) == 127] = np.nan
    return np.where(codes & 128, -found, found).astype(np.float32)


E4M3 = _e4m3()
"""The value of each byte as an 8-bit float: 4 bits of exponent, 3 of fraction, no infinities."""

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def powers(octets: NDArray[Any]) -> F32Array:
    """Returns the values of E8M0 floats: 2^(e - 127); 255 is NaN."""
    found: F32Array = np.ldexp(np.float32(1), np.minimum(octets, 254).astype(np.int32) - 127).astype(np.float32)
    found[octets == 255] = np.nan
    return found


def low_first(octets: U8Array) -> U8Array:
    """Unpacks (..., n) to (..., 2 n): the low half of each byte, then the high half."""
    return np.stack((octets & np.uint8(15), octets >> np.uint8(4)), axis=-1).reshape(*octets.shape[:-1], -1)
