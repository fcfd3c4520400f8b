"""Where a program's rows wait for each other: at each call that reads other rows through a cache."""

from __future__ import annotations

from dataclasses import replace

from twostroke.ops.program.op import OpPart
from twostroke.ops.program.program import Program


def with_row_cuts(program: Program) -> Program:
    """The program with a cut before and after each attention and one at the end of its body, so that it can be computed
    in blocks of rows.

    All other calls of a body make a row of the same row of what they read. K and V of all rows are written before the
    attention that reads them, and no row writes those of the next layer before it has ended.
    """
    places = [place for place, call in enumerate(program.body) if call.PART is OpPart.ATTENTION]
    cuts = sorted({cut for place in places for cut in (place, place + 1)} - {0} | {len(program.body)})
    return replace(program, cuts=tuple(cuts))


def parts_of(program: Program) -> tuple[Program, ...]:
    """The body's parts between two cuts, and the head. They share one memory: that of the whole."""
    edges = [0, *program.cuts, len(program.body)]
    body = [program.body[begin:end] for begin, end in zip(edges, edges[1:], strict=False) if begin < end]
    return (*(replace(program, body=part, head=(), cuts=()) for part in body), replace(program, body=(), cuts=()))
