"""head_norm: rms_norm of each head's vector, in place (Qwen3's q and k norms).

    x (T, H, D) float32, possibly a strided view whose last two axes are contiguous; weight (D,) float32.

Knows: the contract, the reference, the cost. Must not know: implementations.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array


def reference(x: F32Array, weight: F32Array, eps: float) -> None:
    """See the module."""
    mean_square = np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True)
    x[...] = (x / np.sqrt(mean_square + eps) * weight).astype(np.float32)


def cost(x: F32Array, weight: F32Array, eps: float) -> Work:
    """4 FLOPs an element; read once, written once."""
    return Work(4 * x.size, weight_bytes=4 * weight.size, activation_bytes=8 * x.size)
