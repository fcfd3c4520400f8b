"""Reads bits out of blocks of bytes."""

from __future__ import annotations

import numpy as np

from twostroke.ops.operands import F32Array, U8Array


def halves(raw: U8Array) -> F32Array:
    """Converts (n, 2 k) bytes of float16 to (n, k) float32."""
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


def fields(raw: U8Array, bits: int) -> U8Array:
    """Converts (..., k) bytes to (..., 8 / bits, k): the fields of `bits` bits of each byte, the lowest first."""
    found = np.empty((*raw.shape[:-1], 8 // bits, raw.shape[-1]), np.uint8)
    for index in range(8 // bits):
        np.right_shift(raw, np.uint8(index * bits), out=found[..., index, :])
    found &= np.uint8((1 << bits) - 1)
    return found
