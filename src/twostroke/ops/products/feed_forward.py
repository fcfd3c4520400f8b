"""feed_forward: SwiGLU (Shazeer 2020) added to the residual stream.

    out (T, rows) float32 += linear_silu(x, gate_up) @ W_down.T + bias; exactly linear_silu.py into `middle` and
    linear_add.py from there, one after the other, both with the same positions. middle (T, F) is room that an
    implementation may use; its content afterwards is undefined.
"""

from __future__ import annotations

from twostroke.ops.cases import CODES, FLOATS, between, grid
from twostroke.ops.operands import F32Array, I32Array, PackedWeight
from twostroke.ops.products import linear_add, linear_silu
from twostroke.ops.program.op import Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import Indices, Value, Weight


def reference(
    out: F32Array,
    x: F32Array,
    gate_up: PackedWeight,
    down: PackedWeight,
    middle: F32Array,
    positions: I32Array | None = None,
) -> None:
    """Adds the result of the SwiGLU block to `out`. middle (T, F): scratch memory. Raises ValueError where gate_up has
    an odd number of rows."""
    linear_silu.reference(middle, x, gate_up, positions)
    linear_add.reference(out, middle, down, positions)


@op
class FeedForward(Op):
    """SwiGLU added to `out`. No model file calls it: `fuse` makes it from linear_silu and linear_add."""

    SHAPES = {"out": "T N", "x": "T K", "gate_up": "2F K", "down": "N F", "middle": "T F", "positions": "T"}
    CASES = tuple(
        grid(tolerance, formats=formats, T=(1, 7, 40), N=(1, 64), K=(40, 130), F=(1, 65, 128, 150), positions=positions)
        for tolerance, formats, positions in ((1e-4, FLOATS, None), (0.05, CODES, None), (0.05, CODES, between(0, 9)))
    )
    PART = OpPart.PRODUCT
    SCRATCH = ("middle",)

    out: Value
    x: Value
    gate_up: Weight
    down: Weight
    middle: Value
    positions: Indices | None = None

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts the costs of linear_silu and linear_add. `middle`, the value between them, is written and read."""
        first = linear_silu.LinearSilu(self.middle, self.x, self.gate_up)
        return first.cost(formats) + linear_add.LinearAdd(self.out, self.middle, self.down).cost(formats)


def fuse_feed_forward(first: Op, second: Op) -> Op | None:
    """Returns one call in place of linear_silu and the linear_add that reads its result; None for other calls."""
    if not (isinstance(first, linear_silu.LinearSilu) and isinstance(second, linear_add.LinearAdd)):
        return None
    if second.x is not first.out or second.positions != first.positions:
        return None
    return FeedForward(second.out, first.x, first.weight, second.weight, first.out, first.positions)
