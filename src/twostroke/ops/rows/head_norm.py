"""head_norm: rms_norm of each head's vector, in place (Qwen3's q and k norms).

    x (T, H, D) float32, possibly a strided view whose last two axes are contiguous; weight (D,) float32.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Vector


def reference(x: F32Array, weight: F32Array, eps: float) -> None:
    mean_square = np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True)
    x[...] = (x / np.sqrt(mean_square + eps) * weight).astype(np.float32)


@op
class HeadNorm(Op):
    """The norm of each head, in place."""

    SHAPES = {"out": "T H D", "weight": "D"}
    CASES = (grid(3e-6, T=(1, 9), H=(1, 3), D=(2, 16, 20, 64, 300), eps=1e-6),)
    BY_HEADS = True

    out: Value
    weight: Vector
    eps: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 4 FLOPs for each element. Each element is read once and written once."""
        width = self.out.width
        return OpCost(Work(0, weight_bytes=4 * self.weight.length), Work(4 * width, activation_bytes=8 * width))


def head_norm(x: Value, weight: Vector, eps: float) -> Value:
    """Records the norm of each head of x (T, H, D), over x."""
    out = x.written()
    x.trace.record(HeadNorm(out, weight, eps))
    return out
