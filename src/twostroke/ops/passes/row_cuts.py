"""Finds the places where a program's rows wait for each other: the calls that read K and V of other rows."""

from __future__ import annotations

from dataclasses import replace

from twostroke.ops.program.folded import fold_of
from twostroke.ops.program.op import OpPart
from twostroke.ops.program.program import Program


def with_row_cuts(program: Program) -> Program:
    """Returns the program divided by cuts: before and after each attention, at the end of its body, and at the fold of
    an image encoder. The part between two cuts can be computed one block of rows after the other.

    This works because all calls but attention make each row from the same row of their inputs. A part ends before the
    next begins, so attention finds K and V of all rows.
    """
    places = [place for place, call in enumerate(program.body) if call.PART is OpPart.ATTENTION]
    cuts = {cut for place in places for cut in (place, place + 1)} - {0} | {len(program.body)}
    fold = fold_of(program)
    return replace(program, cuts=tuple(sorted(cuts | ({fold.at} if fold else set()))))


def parts_of(program: Program) -> tuple[Program, ...]:
    """Returns the body's parts between the cuts, and the head as the last part. All parts share the memory of the whole
    program."""
    edges = [0, *program.cuts, len(program.body)]
    body = [program.body[begin:end] for begin, end in zip(edges, edges[1:], strict=False) if begin < end]
    return (*(replace(program, body=part, head=(), cuts=()) for part in body), replace(program, body=(), cuts=()))
