"""rope: rotary position embedding, half-rotation layout (Su et al. 2021; the Hugging Face layout of it), in place.

    x (T, H, D) float32, possibly strided with contiguous last two axes; R = 2 * table.cos.shape[1] <= D rotary
    dimensions; for i < R / 2: (x_i, x_{i + R/2}) is rotated by the angle of position p and frequency i.
    positions (T,) int32, each below table.cos.shape[0].
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.cases import below, grid
from twostroke.ops.operands import F32Array, I32Array, RopeTable
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Indices, Rope, Value


def reference(x: F32Array, table: RopeTable, positions: I32Array) -> None:
    """Rotates the first R dimensions of each head of x, in place, by the angles of the row's position. Raises
    IndexError for a position outside the table."""
    half = table.cos.shape[1]
    cos, sin = table.cos[positions][:, None, :], table.sin[positions][:, None, :]
    low, high = x[..., :half].copy(), x[..., half : 2 * half].copy()
    x[..., :half] = low * cos - high * sin
    x[..., half : 2 * half] = high * cos + low * sin


@op
class Rotate(Op):
    """Rotary embedding of each head, in place."""

    SHAPES = {"out": "T H D", "positions": "T"}
    CASES = (
        grid(2e-5, T=(1, 9), H=(1, 3), P=50, R=(1, 8, 10, 64), D=("2 R", "3 R"), positions=below("P")),
    )
    BY_HEADS = True

    out: Value
    table: Rope
    positions: Indices

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 3 FLOPs for each rotated element. Each is read once and written once."""
        rotated = self.out.shape[0] * self.table.spec.rotary_dim
        return OpCost(per_row=Work(3 * rotated, activation_bytes=8 * rotated))


def rope(x: Value, table: Rope, positions: Indices) -> Value:
    """Records the rotation of x (T, H, D) by its positions, in place, and returns the rotated value."""
    out = x.written()
    x.trace.record(Rotate(out, table, positions))
    return out
