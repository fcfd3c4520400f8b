"""silu_mul: the gated activation of SwiGLU (Shazeer 2020).

    out (T, F) = silu(gate) * up, gate_up (T, 2 F) float32 = [gate | up]; silu(z) = z / (1 + exp(-z)).

Knows: the contract, the reference, the cost. Must not know: implementations.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array


def reference(out: F32Array, gate_up: F32Array) -> None:
    """See the module."""
    half = gate_up.shape[1] // 2
    gate, up = gate_up[:, :half].astype(np.float64), gate_up[:, half:]
    with np.errstate(over="ignore"):
        out[...] = (gate / (1.0 + np.exp(-gate)) * up).astype(np.float32)


def cost(out: F32Array, gate_up: F32Array) -> Work:
    """5 FLOPs an output element; both halves read, one written."""
    return Work(5 * out.size, activation_bytes=12 * out.size)
