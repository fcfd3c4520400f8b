"""rope: rotary position embedding, half-rotation layout (Su et al. 2021; the Hugging Face layout of it), in place.

    x (T, H, D) float32, possibly strided with contiguous last two axes; R = 2 * table.cos.shape[1] <= D rotary
    dimensions; for i < R / 2: (x_i, x_{i + R/2}) is rotated by the angle of position p and frequency i.
    positions (T,) int32, each below table.cos.shape[0].

Knows: the contract, the reference, the cost. Must not know: implementations, how the table was made.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array, I32Array, RopeTable


def reference(x: F32Array, table: RopeTable, positions: I32Array) -> None:
    """See the module. Raises IndexError for a position outside the table."""
    half = table.cos.shape[1]
    cos, sin = table.cos[positions][:, None, :], table.sin[positions][:, None, :]
    low, high = x[..., :half].copy(), x[..., half : 2 * half].copy()
    x[..., :half] = low * cos - high * sin
    x[..., half : 2 * half] = high * cos + low * sin


def cost(x: F32Array, table: RopeTable, positions: I32Array) -> Work:
    """3 FLOPs a rotated element; read once, written once."""
    rotated = x.shape[0] * x.shape[1] * 2 * table.cos.shape[1]
    return Work(3 * rotated, activation_bytes=8 * rotated)
