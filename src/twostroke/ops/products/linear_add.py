"""linear_add: a product added to the present content of `out`, the residual stream.

    out (T, rows) float32 += x (T, columns) float32 @ W.T + bias; the product of linear.py, rounded, then one
    addition.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array, I32Array, PackedWeight
from twostroke.ops.products import linear
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.rows.expressions import added


def reference(out: F32Array, x: F32Array, weight: PackedWeight, positions: I32Array | None = None) -> None:
    product = np.empty((x.shape[0], weight.rows), np.float32)
    linear.reference(product, x, weight, positions)
    out += product


@op
class LinearAdd(linear.MatrixOp):
    """A product added to `out`. No model file calls it: `fuse` makes it from a product and an addition."""

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts the product, and an addition and one more read for each output element."""
        rows = self.weight.rows
        return linear.product_cost(self.weight, formats) + OpCost(per_row=Work(rows, activation_bytes=4 * rows))


def fuse_linear_add(first: Op, second: Op) -> Op | None:
    """Returns one call for out += linear(x, weight) in place of the product and the addition; None for other calls."""
    x = added(second)
    if x is None or second.result is None or not isinstance(first, linear.Linear):
        return None
    whole = x.root is first.out and x.width == first.out.width
    return LinearAdd(second.result, first.x, first.weight, first.positions) if whole else None
