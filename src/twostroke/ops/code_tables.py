"""Tables of the values that nibbles stand for, where a nibble is not the number itself: floats of 4 bits, and the
numbers of ggml's IQ4 types."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import U8Array

I8Array = NDArray[np.int8]

E2M1_CODES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
"""Twice the value of each float of 4 bits. The index is the float's bits."""

IQ4_CODES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
"""The codes of ggml's IQ4_NL and IQ4_XS. The index is the nibble."""

_IQ4_NUMBERS = np.full(256, 255, np.uint8)
_IQ4_NUMBERS[IQ4_CODES.view(np.uint8)] = np.arange(16)

_E2M1_BITS = np.zeros(256, np.uint8)
_E2M1_BITS[E2M1_CODES[:8]] = np.arange(8)
_E2M1_BITS[E2M1_CODES[9:].view(np.uint8)] = np.arange(9, 16)
_E2M1_DOUBLED = E2M1_CODES.tobytes() * 16


def e2m1_codes(bits: U8Array) -> I8Array:
    """Returns twice the values of floats of 4 bits. bits: the floats' bits, one float in each byte."""
    return _translated(bits, _E2M1_DOUBLED).view(np.int8)


def e2m1_bits(codes: I8Array) -> U8Array:
    """The inverse of `e2m1_codes`. A code is twice a float of 4 bits (E2M1). Raises ValueError for any other code."""
    octets = codes.view(np.uint8)
    if octets.tobytes().translate(None, E2M1_CODES.tobytes()):
        raise ValueError("a code is not twice a float of 4 bits")
    return _translated(octets, _E2M1_BITS.tobytes())


def iq4_numbers(codes: I8Array) -> U8Array:
    """Returns the index of each code in IQ4_CODES. Raises ValueError for a code that is not in that table."""
    numbers = _translated(codes.view(np.uint8), _IQ4_NUMBERS.tobytes())
    if numbers.max(initial=0) > 15:
        raise ValueError("a code is not one of IQ4's")
    return numbers


def _translated(octets: U8Array, table: bytes) -> U8Array:
    """Replaces each byte by its entry in `table` (256 bytes). This is several times as fast as NumPy's indexing, which
    makes each byte a whole number first."""
    return np.frombuffer(octets.tobytes().translate(table), np.uint8).reshape(octets.shape)
