"""linear_add: a product added to what is there, the residual stream.

    out (T, rows) float32 += x (T, columns) float32 @ W.T + bias; the product of ops/linear.py, rounded, then one
    addition.

Knows: the contract, the reference, the cost. Must not know: implementations.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops import linear
from twostroke.ops.operands import F32Array, PackedWeight


def reference(out: F32Array, x: F32Array, weight: PackedWeight) -> None:
    """See the module."""
    product = np.empty((x.shape[0], weight.rows), np.float32)
    linear.reference(product, x, weight)
    out += product


def cost(out: F32Array, x: F32Array, weight: PackedWeight) -> Work:
    """The product, an addition and one more read for each output element."""
    return linear.cost(out, x, weight) + Work(out.size, activation_bytes=4 * out.size)
