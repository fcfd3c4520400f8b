"""gather_rows: the rows that need logits.

    out (R, D) float32 = x[rows], x (T, D) float32, rows (R,) int32, each in [0, T).

Knows: the contract, the reference, the cost. Must not know: implementations.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array, I32Array


def reference(out: F32Array, x: F32Array, rows: I32Array) -> None:
    """See the module. Raises IndexError for a row outside x."""
    out[...] = x[rows]


def cost(out: F32Array, x: F32Array, rows: I32Array) -> Work:
    """Read once, written once."""
    return Work(0, activation_bytes=8 * out.size)
