"""Cosine and sine with the same bits on every processor and with every C library.

NumPy and the C library choose their implementation by the processor's features, and the implementations differ in the
last bit. This module uses only +, - and * on float64, each rounded once, as in IEEE 754.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

F64Array = NDArray[np.float64]

_PI = Fraction(3141592653589793238462643383279502884197169399375105820974944592307816406286, 10**75)
_PIECE_BITS = 25
"""The number of bits of the first two pieces of pi / 2. Their products with whole numbers below 2^28 are exact."""
MOST_ANGLE = 2.0**27
BLOCK = 8192
"""The angles that are computed at a time: their intermediate values stay in a core's cache."""
_SIN = tuple((-1) ** n / float(np.prod(np.arange(1, 2 * n + 2, dtype=np.float64))) for n in range(9))
_COS = tuple((-1) ** n / float(np.prod(np.arange(1, 2 * n + 1, dtype=np.float64))) for n in range(10))
"""The coefficients of the Taylor series of sine and cosine in x^2. For |x| <= pi / 4 their errors are below 2^-56."""


def _half_pi_pieces() -> tuple[float, float, float]:
    """Returns three numbers whose sum is pi / 2 to within 2^-103. The first two have _PIECE_BITS bits."""
    left, pieces = _PI / 2, []
    for place in (_PIECE_BITS - 1, 2 * _PIECE_BITS - 1):
        piece = Fraction(int(left * 2**place), 2**place)
        pieces.append(float(piece))
        left -= piece
    return pieces[0], pieces[1], float(left)


_HALF_PI = _half_pi_pieces()
_TURNS = float(2 / _PI)


CONSTANTS = (_TURNS, *_HALF_PI, *_SIN, *_COS)
"""The constants of this module's cosine and sine, in the order in which native code takes them: 2 / pi, the pieces of
pi / 2, and the coefficients of both series."""


def cos_sin(angles: F64Array) -> tuple[F64Array, F64Array]:
    """Returns the cosines and sines of angles in radians, from 0 to MOST_ANGLE. The error is at most 2 units of the
    last place of float64.

    It uses Cody and Waite's reduction by pi / 2 in three pieces, then Taylor series. Raises ValueError for an angle
    outside that range.
    """
    if angles.size and not (float(angles.min()) >= 0.0 and float(angles.max()) <= MOST_ANGLE):
        raise ValueError(f"angles must lie between 0 and {MOST_ANGLE:.0f}")
    cosine, sine = np.empty(angles.shape), np.empty(angles.shape)
    flat, outs = np.ascontiguousarray(angles).reshape(-1), (cosine.reshape(-1), sine.reshape(-1))
    for first in range(0, flat.size, BLOCK):
        part = slice(first, first + BLOCK)
        _write_block(flat[part], outs[0][part], outs[1][part])
    return cosine, sine


def _write_block(angles: F64Array, cosine: F64Array, sine: F64Array) -> None:
    quarter = np.rint(angles * _TURNS)
    rest, step = angles - quarter * _HALF_PI[0], quarter * _HALF_PI[1]
    rest -= step
    rest -= np.multiply(quarter, _HALF_PI[2], out=step)
    square = np.multiply(rest, rest, out=step)
    odd, even = _series(_SIN, square), _series(_COS, square)
    odd *= rest
    turn = quarter.astype(np.int64)
    swapped = (turn & 1) == 1
    np.copyto(cosine, even)
    np.copyto(cosine, odd, where=swapped)
    np.copyto(sine, odd)
    np.copyto(sine, even, where=swapped)
    np.negative(cosine, out=cosine, where=((turn + 1) & 2) == 2)
    np.negative(sine, out=sine, where=(turn & 2) == 2)


def _series(coefficients: tuple[float, ...], square: F64Array) -> F64Array:
    total = square * coefficients[-1]
    total += coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        total *= square
        total += coefficient
    return total
