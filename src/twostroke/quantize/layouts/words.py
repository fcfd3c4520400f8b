"""Codes in words of 32 bits, lowest bits first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twostroke.quantize.mathematics.solved import U8Array

WORD_BITS = 32


def packed_words(codes: U8Array, bits: int) -> NDArray[np.int32]:
    """Packs codes (n, k) of 4 or 8 bits into (n, ceil(k * bits / 32)) int32; missing codes are 0. Raises ValueError."""
    if WORD_BITS % bits:
        raise ValueError(f"codes of {bits} bits do not fill words")
    each = WORD_BITS // bits
    rows, columns = codes.shape
    full = np.zeros((rows, -(-columns // each) * each), np.uint32)
    full[:, :columns] = codes
    shifts = np.arange(0, WORD_BITS, bits, dtype=np.uint32)
    words = np.bitwise_or.reduce(full.reshape(rows, -1, each) << shifts, axis=2)
    found: NDArray[np.int32] = words.astype(np.uint32).view(np.int32)
    return found
