"""Programs of image encoders in which groups of neighbouring rows become one row each in the middle of the body (the
fold).

The code that runs the program joins the rows, not a call: it copies the rows of each group into one row of an input of
the program. No call before the first attention reads this input.
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
        """The number of rows that become one."""
        return self.target.width // self.source.width


def fold_of(program: Program) -> FoldPlace | None:
    """Returns where a program joins groups of rows into one row each; None where all calls have the same number of
    rows."""
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
