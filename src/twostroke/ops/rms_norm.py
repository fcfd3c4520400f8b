"""rms_norm: root mean square layer norm (Zhang and Sennrich 2019).

    out (T, D) = x / sqrt(mean(x^2) + eps) * weight, x (T, D) float32, weight (D,) float32.

Knows: the contract, the reference, the cost. Must not know: implementations.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array


def reference(out: F32Array, x: F32Array, weight: F32Array, eps: float) -> None:
    """See the module."""
    mean_square = np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True)
    out[...] = (x / np.sqrt(mean_square + eps) * weight).astype(np.float32)


def cost(out: F32Array, x: F32Array, weight: F32Array, eps: float) -> Work:
    """4 FLOPs an element; read once, written once."""
    return Work(4 * x.size, weight_bytes=4 * weight.size, activation_bytes=8 * x.size)
