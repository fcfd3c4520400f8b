"""head_linear: each head's vector times a matrix of that head's own.

    out (T, H, N) float32 = x (T, H, K) @ W_h.T + bias_h for each head h. weight is a bank of H matrices of (N, K). Each
    product is that of linear.py, so one row's result depends on that row alone.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array, PackedWeight
from twostroke.ops.products import linear
from twostroke.ops.program.op import Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import Value, Weight


def reference(out: F32Array, x: F32Array, weight: PackedWeight) -> None:
    for head in range(weight.experts):
        made = np.empty((len(x), weight.rows), np.float32)
        linear.reference(made, np.ascontiguousarray(x[:, head]), weight.expert(head))
        out[:, head] = made


@op
class HeadLinear(Op):
    """Multiplies the vector of each attention head by a matrix of that head's own."""

    SHAPES = {"out": "T H N", "x": "T H K", "weight": "* K"}
    CASES = (grid(1e-5, T=(1, 9), H=(1, 3), N=(16, 70), K=(40, 130), weight="N", bank="H"),)
    PART = OpPart.PRODUCT

    out: Value
    x: Value
    weight: Weight

    @property
    def experts_of_a_row(self) -> int:
        """The number of matrices that each row is multiplied by: the bank has one for each attention head, and all are
        used."""
        return self.weight.experts

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 2 FLOPs for each weight and row. The bytes of the heads' matrices are not counted here but by
        `ExpertBank` in cost/work_table.py."""
        moved = 4 * (self.x.width + self.out.width)
        return OpCost(per_row=Work(2 * self.weight.elements, activation_bytes=moved))


def head_linear(x: Value, weight: Weight) -> Value:
    """Records the products of x (T, H, K) with a bank of H matrices (N, K), and returns them, (T, H, N)."""
    if weight.experts != x.shape[0]:
        raise ValueError(f"{x.shape[0]} heads do not fit a bank of {weight.experts} matrices")
    out = x.fresh(weight.experts, weight.rows)
    x.trace.record(HeadLinear(out, x, weight))
    return out
