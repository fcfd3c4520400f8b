"""gather: the parts of a value that the ranks have computed, put together on every rank.

    out (T, W) float32 = [part of rank 0 | part of rank 1 | ...], part (T, V) float32; V may differ from rank to rank.

reader: the matrix of the one product that reads `out`, where there is no other reader. With a matrix of an integer
kind, this product rounds each group of `activation_columns` columns to int8 (`products/linear.py` quantize_rows). Then
ranks may exchange int8 codes and the largest magnitude of each group, about a quarter of the bytes. Each rank then
makes floats from the codes for `out`. The product rounds these to the same codes and scales, so its bits are the same.
A rank sends codes only if its columns are whole groups of the product's input, in which they begin at column `first`.

Floats are exchanged in two other cases. The first is a matrix with rotated columns: the product rotates its inputs
before it rounds them, and no floats could be made that give the same codes. The second is a step with first positions
of a text, because the product also uses the rounding errors of their rows (linear.py). positions: the positions of the
rows, as the product has them; None if it has none.

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
        """Returns how many bytes a rank sends to each other rank for one row of its part: int8 codes and scales where
        the reader allows it, else floats. Steps with the first positions of a text always send floats; this is not
        counted."""
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
