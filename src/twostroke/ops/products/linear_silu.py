"""linear_silu: the two first products of SwiGLU and its gate (Shazeer 2020) in one.

    out (T, F) float32 = silu(gate) * up; [gate | up] (T, 2 F) = x (T, columns) @ W.T + bias as in linear.py, W of
    2 F rows; silu(z) = z / (1 + exp(-z)). The (T, 2 F) matrix is never written.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import CODES, between, grid
from twostroke.ops.operands import F32Array, I32Array, PackedWeight
from twostroke.ops.products import linear
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.rows.gate import Activation, GateProduct


def reference(out: F32Array, x: F32Array, weight: PackedWeight, positions: I32Array | None = None) -> None:
    """Computes silu(gate) * up of the product [gate | up] = x @ W.T + bias. Raises ValueError where W has an odd number
    of rows."""
    if weight.rows % 2:
        raise ValueError(f"gate and up rows must be as many: {weight.rows} rows are odd")
    product = np.empty((x.shape[0], weight.rows), np.float32)
    linear.reference(product, x, weight, positions)
    half = weight.rows // 2
    gate, up = product[:, :half].astype(np.float64), product[:, half:]
    with np.errstate(over="ignore"):
        out[...] = (gate / (1.0 + np.exp(-gate)) * up).astype(np.float32)


@op
class LinearSilu(linear.MatrixOp):
    """The products with the gate and up matrices, which lie in one weight, and silu(gate) * up. No model file calls it:
    `fuse` makes it from the op `linear` and the op `gate`."""

    SHAPES = {"out": "T F", "x": "T K", "weight": "2F K", "positions": "T"}
    CASES = (
        grid(1e-4, T=(0, 1, 6, 37), F=(1, 31, 100), K=(1, 64, 300), positions=None),
        grid(1e-4, formats=CODES, T=(1, 6, 37), F=(1, 31, 100), K=(1, 64, 300), positions=between(0, 9)),
    )

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts the products, and 5 FLOPs for each output element."""
        width = self.out.width
        gate = OpCost(per_row=Work(5 * width, activation_bytes=-4 * width))
        return linear.product_cost(self.weight, formats) + gate


def is_silu(gate: GateProduct) -> bool:
    """Returns whether the gate is exactly silu(gate) * up."""
    return gate.activation == Activation.SILU and not gate.limit and not gate.shift


def fuse_linear_silu(first: Op, second: Op) -> Op | None:
    """Returns one call in place of linear(x, weight) and the gate silu(gate) * up of its result; None for other
    calls."""
    if not (isinstance(first, linear.Linear) and isinstance(second, GateProduct) and second.x.root is first.out):
        return None
    whole = second.x.width == first.out.width and is_silu(second)
    return LinearSilu(second.out, first.x, first.weight, first.positions) if whole else None
