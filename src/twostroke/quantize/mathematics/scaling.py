"""Scales of channels that make a product easier to round: inputs are divided by them, columns multiplied.

    x W^T = (x / s) (W diag(s))^T

The division is folded into the tensor that makes the inputs (a norm, or the rows of the product before), so that the
model computes the same. There are two ways to choose s:

AWQ (Lin et al. 2023): s = mean|x|^a / mean|W|^(1 - a), where a is the number of a small set with which the rounded
matrix changes the outputs least. Channels with large inputs get finer steps. `rounded` is the function that rounds.

SmoothQuant (Xiao et al. 2023): s = max|x|^a / max|W|^(1 - a), with a fixed a. Where inputs are rounded to 8 bits token
by token, one large channel makes the steps of all others coarse. The scales move half of its size into the weights.

Scales are powers of two where `exact` is asked for: then folding them changes no digit of a bfloat16 number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from twostroke.quantize.mathematics.moments import F32Array, Moments, output_error

SHARES = tuple(step / 10 for step in range(11))
"""The values that `awq_scales` tries for the exponent a in its scales s = mean|x|^a / mean|W|^(1 - a)."""
SMOOTH_SHARE = 0.5
MOST_ROWS = 512
"""The search uses about this many rows of a matrix, evenly spaced."""
MOST_SCALE = np.float32(2.0**10)
_TINY = np.float32(1e-5)

Rounded = Callable[[F32Array], F32Array]
"""A function rounded(matrix) that quantizes a matrix and returns the values for which its codes stand."""


def balanced(scales: F32Array, exact: bool) -> F32Array:
    """Returns the scales divided by their geometric mean, within MOST_SCALE and its inverse; powers of two where
    `exact`."""
    usable = np.where(np.isfinite(scales) & (scales > 0), scales, np.float32(1))
    centre = np.exp(np.mean(np.log(usable), dtype=np.float64))
    found: F32Array = np.clip(usable / np.float32(centre), 1 / MOST_SCALE, MOST_SCALE).astype(np.float32)
    return np.exp2(np.rint(np.log2(found))).astype(np.float32) if exact else found


def awq_scales(matrix: F32Array, moments: Moments, rounded: Rounded, exact: bool) -> F32Array:
    """Returns AWQ's scales (columns,) for all products that read one input; all ones where no scales are better.
    matrix: the rows of all these products' matrices, joined. moments: those of the input."""
    some = matrix[:: max(1, len(matrix) // MOST_ROWS)]
    columns = matrix.shape[1]
    inputs = np.maximum(moments.magnitudes / max(1, moments.rows), _TINY)
    weights = np.maximum(np.abs(matrix).mean(axis=0, dtype=np.float64), _TINY)
    best = np.ones(columns, np.float32)
    least = output_error(rounded(some) - some, moments.hessian)
    for share in SHARES:
        scales = balanced((inputs**share / weights ** (1 - share)).astype(np.float32), exact)
        error = output_error(rounded(some * scales) / scales - some, moments.hessian)
        if error < least:
            best, least = scales, error
    return best


def smooth_scales(matrix: F32Array, moments: Moments, exact: bool, share: float = SMOOTH_SHARE) -> F32Array:
    """Returns SmoothQuant's scales (columns,) for all products that read one input. matrix: the rows of all these
    products' matrices, joined."""
    inputs = np.maximum(moments.largest, _TINY)
    weights = np.maximum(np.abs(matrix).max(axis=0), _TINY)
    return balanced((inputs**share / weights ** (1 - share)).astype(np.float32), exact)
