"""head_layer_norm: layer_norm of each head's vector, in place (the norms of q and k of Persimmon and Command R+).

    x (T, H, D) float32, possibly a strided view whose last two axes are contiguous. weight, and bias where there is
    one, float32: (D,) for all heads, or (H * D,), where each head has its own.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Vector
from twostroke.ops.rows import layer_norm


def reference(x: F32Array, weight: F32Array, bias: F32Array | None, eps: float) -> None:
    heads = weight.reshape(-1, x.shape[-1])
    biases = np.zeros(1, np.float32) if bias is None else bias.reshape(-1, x.shape[-1])
    layer_norm.reference(x, x, heads, biases, eps)


@op
class HeadLayerNorm(Op):
    """The layer norm of each head, in place."""

    SHAPES = {"out": "T H D", "weight": "*", "bias": "*"}
    CASES = (
        grid(2e-5, T=(1, 9), H=(1, 3), D=(2, 20, 128), weight="D", bias=("D", None), eps=1e-5),
        grid(2e-5, T=(1, 9), H=(1, 3), D=(2, 20, 128), weight="H D", bias=None, eps=1e-5),
    )
    BY_HEADS = True
    COLUMN_VECTOR = "weight"

    out: Value
    weight: Vector
    bias: Vector | None
    eps: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 8 FLOPs for each element, as layer_norm. Each element is read once and written once."""
        width, numbers = self.out.width, self.weight.length * (1 if self.bias is None else 2)
        return OpCost(Work(0, weight_bytes=4 * numbers), Work(8 * width, activation_bytes=8 * width))


def head_layer_norm(x: Value, weight: Vector, bias: Vector | None, eps: float) -> Value:
    """Records the norm of each head of x (T, H, D), over x. Raises ValueError for vectors of another length."""
    lengths = {vector.length for vector in (weight, bias) if vector is not None}
    if lengths not in ({x.shape[-1]}, {x.width}):
        raise ValueError(f"vectors of {sorted(lengths)} numbers do not fit {x.shape[0]} heads of {x.shape[-1]}")
    out = x.written()
    x.trace.record(HeadLayerNorm(out, weight, bias, eps))
    return out
