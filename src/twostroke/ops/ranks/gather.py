"""gather: the parts of a value that the ranks have computed, put together on every rank.

    out (T, W) float32 = [part of rank 0 | part of rank 1 | ...], part (T, V) float32, V of each rank its own.

reader: the matrix of the one product that reads `out`, where there is no other reader. With a matrix of an integer
kind, this product rounds each group of `activation_columns` columns to int8 (`products/linear.py` quantize_rows). Then
ranks may exchange int8 codes and the largest magnitude of each group, about a quarter of the bytes. `out` then holds
floats made from the codes. They round to the same codes and scales, so the product's bits are the same. A rank sends
codes where its columns, which begin at column `first` of the product's input, are whole groups.

Floats are exchanged where the matrix's columns are rotated, because no floats would round to given codes. They are also
exchanged in a step that has first positions of a text, whose rows the product rounds to two int8 codes (linear.py).
positions: the operand of the product; None where it has none.

The reference is for one rank alone, whose part is the whole value. Several ranks exchange their parts in the cpu
backend.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array, I32Array, PackedWeight
from twostroke.ops.program.op import FormatChoice, Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Indices, Value, Weight

ELEMENT_BYTES = 4


def reference(
    out: F32Array,
    part: F32Array,
    reader: PackedWeight | None = None,
    first: int = 0,
    positions: I32Array | None = None,
) -> None:
    out[...] = part


@op
class Gather(Op):
    """Joins the parts of a value: out (T, W) has the parts (T, V) of all ranks, in the order of the ranks."""

    SHAPES = {"out": "T W", "part": "T V", "reader": "R C", "positions": "T"}
    ON_DEVICES = False

    out: Value
    part: Value
    reader: Weight | None = None
    first: int = 0
    positions: Indices | None = None

    def sent_row_bytes(self, format_for: FormatChoice) -> int:
        """Returns the bytes of one row of the part, as it is sent to each other rank in most steps. A step with the
        first positions of a text sends floats, which may be more bytes; the result does not count this."""
        reader = None if self.reader is None else format_for(self.reader)
        group = 0 if reader is None or reader.rotated else reader.activation_columns
        width = self.part.width
        whole = group and self.first % group == 0
        if self.reader is None or not whole or (width % group and self.first + width != self.reader.columns):
            return ELEMENT_BYTES * width
        return ELEMENT_BYTES * -(-width // group) + -(-width // ELEMENT_BYTES) * ELEMENT_BYTES

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts the result, read once and written once. The bytes between ranks are not counted in it."""
        return OpCost(per_row=Work(0, activation_bytes=2 * ELEMENT_BYTES * self.out.width))
