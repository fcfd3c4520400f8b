"""layer_norm: layer norm (Ba et al. 2016).

    out (T, D) = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias, x (T, D) float32,
    weight (D,) float32, bias (D,) float32 or left out.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import around, grid, times
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Vector


def reference(out: F32Array, x: F32Array, weight: F32Array, bias: F32Array | None, eps: float) -> None:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    variance = np.mean(centred**2, axis=-1, keepdims=True)
    out[...] = (centred / np.sqrt(variance + eps) * weight + (0 if bias is None else bias)).astype(np.float32)


@op
class LayerNorm(Op):
    """The norm of each row."""

    SHAPES = {"out": "T D", "x": "T D", "weight": "D", "bias": "D"}
    CASES = (
        grid(4e-6, T=(0, 1, 5), D=(1, 15, 33, 200), bias=(times(1), None), eps=1e-5),
        grid(4e-4, T=(1, 5), D=(15, 200), x=around(300), bias=(times(1), None), eps=1e-5),
    )

    out: Value
    x: Value
    weight: Vector
    bias: Vector | None
    eps: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 8 FLOPs for each element: sum, difference, square and its sum, and the result. Each element is read
        once and written once."""
        width = self.x.width
        vectors = 1 if self.bias is None else 2
        return OpCost(Work(0, weight_bytes=4 * vectors * width), Work(8 * width, activation_bytes=8 * width))


def layer_norm(x: Value, weight: Vector, bias: Vector | None, eps: float, *, in_place: bool = False) -> Value:
    """Records the norm of each row of x. in_place: whether the result is written over x itself, which must not be read
    afterwards."""
    out = x.written() if in_place else x.fresh()
    x.trace.record(LayerNorm(out, x, weight, bias, eps))
    return out
