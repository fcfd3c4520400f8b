"""clip_rows: each element held between two numbers of the checkpoint (the bounds of Gemma 4's products).

    out (T, D) float32 = min(max(x, bounds[0]), bounds[1]), x (T, D), bounds (2,) float32. What is NaN stays NaN.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import Filled, grid, of, wild
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Vector


def reference(out: F32Array, x: F32Array, bounds: F32Array) -> None:
    """See the module."""
    np.minimum(np.maximum(x, bounds[0]), bounds[1], out=out)


@op
class ClipRows(Op):
    """x between two bounds."""

    SHAPES = {"out": "T D", "x": "T D", "bounds": "*"}
    CASES = (
        grid(
            T=(0, 1, 6),
            D=(1, 15, 200),
            x=wild,
            bounds=tuple(Filled("2", of(*each)) for each in ((-0.5, 0.25), (0, 0), (-np.inf, 0.5), (-np.inf, np.inf))),
        ),
    )

    out: Value
    x: Value
    bounds: Vector

    def cost(self, formats: StoredFormats) -> OpCost:
        """Two comparisons an element; a read and a write."""
        return OpCost(per_row=Work(2 * self.out.width, activation_bytes=8 * self.out.width))


def clip_rows(x: Value, bounds: Vector) -> Value:
    """x between bounds[0] and bounds[1]; x itself stays as it is. Raises ValueError for another number of bounds."""
    if bounds.length != 2:
        raise ValueError(f"{bounds.length} bounds")
    x = x.flat()
    out = x.fresh(x.width)
    x.trace.record(ClipRows(out, x, bounds))
    return out
