"""idle_share: each row's sum of the weights of experts that compute nothing (zero-computation experts; LongCat-Flash
2025).

    out (T, 1) float32 = sum of the routing weights, in routes (T, 2 k) float32, of experts whose number is at least
                         `experts`, in the order of the routes; routes as route.py writes them

Such an expert returns its input, so the sum of a row over these experts is the row times this number.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, routes
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value


def reference(out: F32Array, routes: F32Array, experts: int) -> None:
    weights, numbers = np.split(routes, 2, axis=1)
    out[...] = 0.0
    for place in range(weights.shape[1]):  # float32 additions, one after the other
        out[:, 0] += np.where(numbers[:, place] >= experts, weights[:, place], np.float32(0))


@op
class IdleShare(Op):
    """For each row, the sum of the routing weights of the experts that compute nothing."""

    SHAPES = {"out": "T 1", "routes": "T 2C"}
    CASES = (grid(T=(1, 30), C=(1, 3), routes=routes("9"), experts=4),)

    out: Value
    routes: Value
    experts: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts two operations for each expert that a row uses: a comparison, which finds whether the expert computes
        nothing, and the addition of its weight. The routes are read once."""
        return OpCost(per_row=Work(self.routes.width, activation_bytes=4 * self.routes.width + 4))


def idle_share(routes: Value, experts: int) -> Value:
    """Records the call and returns for each row the sum of the routing weights of experts that compute nothing, (T, 1).
    These are the experts with an index of `experts` or more."""
    out = routes.fresh(1)
    routes.trace.record(IdleShare(out, routes, experts))
    return out
