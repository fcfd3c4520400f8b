"""The slopes of ALiBi: for each head, how much a score falls with each position of distance (Press et al. 2022)."""

from __future__ import annotations

LARGEST = 8.0
"""The last head's slope is 2 to the power of minus this number, where the number of heads is a power of two."""


def alibi_slopes(num_heads: int) -> tuple[float, ...]:
    """Returns one slope for each head. Slope i of the first n heads is 2^(-8 i / n), where n is the largest power of
    two that fits. The other heads take slopes that 2 n heads would have and that lie between those of the first n
    heads."""
    whole = 1 << (num_heads.bit_length() - 1)
    first = [2.0 ** (-LARGEST * (head + 1) / whole) for head in range(whole)]
    between = [2.0 ** (-LARGEST * (2 * head + 1) / (2 * whole)) for head in range(num_heads - whole)]
    return (*first, *between)
