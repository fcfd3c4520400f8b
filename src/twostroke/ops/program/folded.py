"""Programs whose rows become fewer in the middle of the body: groups of neighbouring rows go on as one row each.

A host joins the rows. The value that takes the joined rows is given, and no call before the first attention reads it.
"""

from __future__ import annotations

from msgspec import Struct

from twostroke.ops.program.op import OpPart
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Value


class FoldPlace(Struct, frozen=True, eq=False):
    """at: the place in the body of the first call that reads joined rows. source: the rows before. target: the value
    that takes the joined rows."""

    at: int
    source: Value
    target: Value

    @property
    def group(self) -> int:
        """The number of rows that become one."""
        return self.target.width // self.source.width


def fold_of(program: Program) -> FoldPlace | None:
    """Returns the place at which the rows of a program become fewer; None where they do not."""
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
