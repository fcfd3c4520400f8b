"""feed_forward: SwiGLU (Shazeer 2020) added to the residual stream.

    out (T, rows) float32 += linear_silu(x, gate_up) @ W_down.T + bias; exactly ops/linear_silu.py into `middle` and
    ops/linear_add.py from there, one after the other. middle (T, F) is room that an implementation may use or not:
    what it holds afterwards is not said.

Knows: the contract, the reference, the cost. Must not know: implementations.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops import linear_add, linear_silu
from twostroke.ops.operands import F32Array, PackedWeight


def reference(out: F32Array, x: F32Array, gate_up: PackedWeight, down: PackedWeight, middle: F32Array) -> None:
    """See the module. Raises ValueError where gate_up has an odd number of rows."""
    linear_silu.reference(middle, x, gate_up)
    linear_add.reference(out, middle, down)


def cost(out: F32Array, x: F32Array, gate_up: PackedWeight, down: PackedWeight, middle: F32Array) -> Work:
    """Of the two ops, the middle written and read."""
    return linear_silu.cost(middle, x, gate_up) + linear_add.cost(out, middle, down)
