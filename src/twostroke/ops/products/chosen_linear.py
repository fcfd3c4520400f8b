"""chosen_linear: products with matrices that rows choose from a bank (mixture of attention heads; Zhang et al. 2022).

    out (T, C, N) float32: out[c] = x[c] @ W.T, W the matrix that the row's c-th number names, x (T, C, K) float32, or
                           (T, 1, K), the same row for every choice. routes (T, 2 C) holds weights and numbers as
                           route.py writes them; the weights are not read. weight is a bank of E matrices (N, K).

A number outside [0, E) is refused. rows (T, K) and made (T, N) are room for the rows of one matrix; their content
afterwards is undefined. One row's result depends on that row alone.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import CODES, FLOATS, grid, routes
from twostroke.ops.operands import F32Array, PackedWeight
from twostroke.ops.products import linear
from twostroke.ops.program.op import Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import Value, Weight


def reference(
    out: F32Array, x: F32Array, routes: F32Array, weight: PackedWeight, rows: F32Array, made: F32Array
) -> None:
    """Multiplies each row by the matrices that its `routes` name, and writes the products to `out`. Raises ValueError
    for a number that belongs to no matrix."""
    chosen = routes[:, routes.shape[1] // 2 :].astype(np.int64)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= weight.experts):
        raise ValueError(f"routes name matrices that are not among the {weight.experts}")
    for choice in range(chosen.shape[1]):
        for matrix in np.unique(chosen[:, choice]):
            met = np.nonzero(chosen[:, choice] == matrix)[0]
            rows[: len(met)] = x[met, choice if x.shape[1] > 1 else 0]
            linear.reference(made[: len(met)], rows[: len(met)], weight.expert(int(matrix)))
            out[met, choice] = made[: len(met)]


@op
class ChosenLinear(Op):
    """For each row, its products with the C matrices of a bank (experts) that a router chose for the row."""

    SHAPES = {
        "out": "T C N",
        "x": "T * K",
        "routes": "T 2C",
        "weight": "* K",
        "rows": "T K",
        "made": "T N",
    }
    CASES = tuple(
        grid(
            tolerance,
            formats=formats,
            T=(1, 21),
            C=(1, 2),
            N=(16, 65),
            K=(40, 130),
            x=("1", "C"),
            weight="N",
            bank=5,
            routes=routes("bank"),
        )
        for tolerance, formats in ((1e-4, FLOATS), (0.03, CODES))
    )
    PART = OpPart.PRODUCT
    SCRATCH = ("rows", "made")

    out: Value
    x: Value
    routes: Value
    weight: Weight
    rows: Value
    made: Value

    @property
    def experts_of_a_row(self) -> int:
        return self.out.shape[0]

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 2 FLOPs for each weight of each matrix that a row is multiplied by. The bytes of the bank are counted
        by cost/work_table.py."""
        width, choices = self.x.shape[1], self.out.shape[0]
        moved = 4 * (3 * choices * width + 3 * self.out.width)
        return OpCost(per_row=Work(2 * self.out.width * width, activation_bytes=moved))


def chosen_linear(x: Value, routes: Value, weight: Weight) -> Value:
    """Records the products of x (T, K) or (T, C, K) with the C matrices that each row chooses, and returns them, (T, C,
    N)."""
    choices = routes.width // 2
    x = x if len(x.shape) > 1 else x.heads(1)
    if x.shape[0] not in (1, choices) or not weight.experts:
        raise ValueError(f"{x.shape[0]} vectors and {choices} choices of {weight.experts} matrices do not fit")
    out = x.fresh(choices, weight.rows)
    x.trace.record(ChosenLinear(out, x, routes, weight, x.fresh(weight.columns), x.fresh(weight.rows)))
    return out
