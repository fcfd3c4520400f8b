"""linear_silu: the two first products of SwiGLU and its gate (Shazeer 2020) in one.

    out (T, F) float32 = silu(gate) * up; [gate | up] (T, 2 F) = x (T, columns) @ W.T + bias as in ops/linear.py, W of
    2 F rows; silu(z) = z / (1 + exp(-z)). The (T, 2 F) matrix is never written.

Knows: the contract, the reference, the cost. Must not know: implementations.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops import linear
from twostroke.ops.operands import F32Array, PackedWeight


def reference(out: F32Array, x: F32Array, weight: PackedWeight) -> None:
    """See the module. Raises ValueError where W has an odd number of rows."""
    if weight.rows % 2:
        raise ValueError(f"gate and up rows must be as many: {weight.rows} rows are odd")
    product = np.empty((x.shape[0], weight.rows), np.float32)
    linear.reference(product, x, weight)
    half = weight.rows // 2
    gate, up = product[:, :half].astype(np.float64), product[:, half:]
    with np.errstate(over="ignore"):
        out[...] = (gate / (1.0 + np.exp(-gate)) * up).astype(np.float32)


def cost(out: F32Array, x: F32Array, weight: PackedWeight) -> Work:
    """The products, and 5 FLOPs for each output element."""
    return linear.cost(out, x, weight) + Work(5 * out.size, activation_bytes=-4 * out.size)
