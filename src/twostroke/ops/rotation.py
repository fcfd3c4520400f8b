"""Rotation of columns: each block of 64 columns is multiplied by a Hadamard matrix before it is rounded.

H has order 64; its element (i, j) is -1 where i and j share an odd number of bits, else 1. H @ H is 64 times the
identity. The columns of weights are multiplied by H / 64 when they are packed. The columns of activations are
multiplied by H before they are rounded to int8, so that the product stays the same. One large number is spread over the
64 columns, so the scale for the others becomes smaller (QuaRot; Ashkboos et al. 2024). A last block that is shorter is
filled up with zeros.

All arithmetic is float32: elements 1, 2, 4, 8, 16 and then 32 apart become their sum and their difference.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twostroke.types.spec.formats import ROTATED_COLUMNS

F32Array = NDArray[np.float32]


def rotated_columns(x: F32Array) -> F32Array:
    """Multiplies each block of 64 columns of x (N, K) float32 by the Hadamard matrix H of order 64. K is filled up with
    zeros to whole blocks of 64 columns."""
    rows, columns = x.shape
    blocks = np.zeros((rows, -(-columns // ROTATED_COLUMNS), ROTATED_COLUMNS), np.float32)
    blocks.reshape(rows, -1)[:, :columns] = x
    return times_hadamard(blocks).reshape(rows, -1)


def times_hadamard(blocks: F32Array) -> F32Array:
    """Returns each block times the Hadamard matrix of order n. blocks: (..., n) float32, n a power of two."""
    shape, half = blocks.shape, 1
    with np.errstate(invalid="ignore", over="ignore"):  # a block that contains an infinity becomes NaN
        while half < shape[-1]:
            pairs = blocks.reshape(-1, 2, half)
            blocks = np.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), axis=1)
            half *= 2
    return blocks.reshape(shape)


def rotated_weights(values: F32Array) -> F32Array:
    """Returns values @ H / 64, the matrix by which rotated activations are multiplied. values: (N, K) float32."""
    return rotated_columns(values) * np.float32(1 / ROTATED_COLUMNS)
