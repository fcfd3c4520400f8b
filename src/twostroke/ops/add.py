"""add: the residual sum, in place.

    x (T, D) float32 += y (T, D) float32.

Knows: the contract, the reference, the cost. Must not know: implementations.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array


def reference(x: F32Array, y: F32Array) -> None:
    """See the module."""
    x += y


def cost(x: F32Array, y: F32Array) -> Work:
    """1 FLOP an element; two read, one written."""
    return Work(x.size, activation_bytes=12 * x.size)
