"""Programs of image encoders in which groups of neighbouring rows become one row each in the middle of the body (the
fold).

No call of the program joins the rows. The code that runs the program does it: it copies the rows of each group into one
row of an input of the program. The calls after the fold read this input.
"""

from __future__ import annotations

from msgspec import Struct

from twostroke.ops.program.op import OpPart
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Value


class FoldPlace(Struct, frozen=True, eq=False):
    """Where groups of rows become one row each. at: the index of the first call in the body that reads the joined rows.
    source: the value with the rows before. target: the program's input that is filled with the joined rows."""

    at: int
    source: Value
    target: Value

    @property
    def group(self) -> int:
        """How many neighbouring rows are joined into one row."""
        return self.target.width // self.source.width


def fold_of(program: Program) -> FoldPlace | None:
    """Returns the place in an image encoder's program at which groups of neighbouring rows, such as four patches, are
    joined into one row each. None for a program without such a place."""
    if not program.given or not program.kept:
        return None
    source, target, begin = program.kept[-1], program.given[-1], None
    if target.width <= source.width or target.width % source.width:
        return None
    for place, call in enumerate(program.body):
        if begin is None and call.PART is OpPart.ATTENTION:
            begin = place
        if any(value.root is target for value in call.reads()):
            return FoldPlace(place, source, target) if begin is not None else None
    return None
