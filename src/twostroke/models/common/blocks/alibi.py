"""The slopes of alibi: what a score loses for each position of distance, by head (Press et al. 2022)."""

from __future__ import annotations

LARGEST = 8.0
"""The exponent of the last head's slope, where their number is a power of two."""


def alibi_slopes(num_heads: int) -> tuple[float, ...]:
    """One slope for each head. The first n heads have 2^(-8 i / n), where n is the largest power of two that fits. The
    others have slopes of 2 n heads, which lie between them.
    """
    whole = 1 << (num_heads.bit_length() - 1)
    first = [2.0 ** (-LARGEST * (head + 1) / whole) for head in range(whole)]
    between = [2.0 ** (-LARGEST * (2 * head + 1) / (2 * whole)) for head in range(num_heads - whole)]
    return (*first, *between)
