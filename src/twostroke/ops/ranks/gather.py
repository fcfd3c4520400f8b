"""gather: the parts of a value that the ranks have computed, put together on every rank.

    out (T, W) float32 = [part of rank 0 | part of rank 1 | ...], part (T, V) float32, V of each rank its own.

Where a product with `reader` is all that reads `out`, and that matrix is of an integer kind, the product rounds each
group of `activation_columns` to int8 (`products/linear.py` quantize_rows). Then ranks may exchange the codes and the
largest magnitude of each group, about a quarter of the bytes. `out` holds other floats, which round to the same codes
and scales, so the product's bits are the same. A rank does so where its columns, which begin at column `first` of the
product's input, are whole groups. Where the matrix's columns are rotated, no floats would round to given codes, so
floats are exchanged. Floats are exchanged too in a step that has first positions of a text, whose rows the product
rounds to two int8 codes (linear.py). positions: those of the product; None where it has none.

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
        """Returns the bytes of one row of the part, as it is sent to each other rank. A step that has first positions
        of a text sends more: it sends floats."""
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
