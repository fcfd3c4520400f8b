"""Divides a language model in which the rows of one image (a span) see each other. Each attention is a part, and so are
the calls between two attentions.

Between two attentions every call makes a row from the same row. So these calls may be computed in blocks of rows, in
several steps of the engine, with other steps in between. The values that later parts read must be kept in between,
because steps share their memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from msgspec import Struct

from twostroke.cost.shape import StepCost
from twostroke.cost.span_pieces import SpanCost, SpanShare
from twostroke.ops.attention.attention import Attention
from twostroke.ops.attention.span_attention import SpanAttention
from twostroke.ops.program.check import writes
from twostroke.ops.program.op import Op, OpPart
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Value, Weight
from twostroke.types.encode import PieceKind

BYTES = 4


class SpanPart(Struct, frozen=True, eq=False):
    """One part of the body of a language model that computes an image's rows part by part: one attention, or the calls
    between two attentions.

    calls: the calls of the part. begins: the values that the part uses and that were written before it. ends: the
    values that the part writes and later parts read. kept: all values that this part or earlier ones wrote and later
    parts read. All these values own memory, so none is a view.
    """

    calls: tuple[Op, ...]
    begins: tuple[Value, ...]
    ends: tuple[Value, ...]
    kept: tuple[Value, ...]

    @property
    def attends(self) -> bool:
        """Whether the part is one attention call."""
        return self.calls[0].PART is OpPart.ATTENTION

    @property
    def work(self) -> int:
        """A measure of the part's computing time: how many multiply-adds with matrices the part has for one row, at
        least 1. Each attention counts 1."""
        return 1 if self.attends else max(1, sum(map(_multiplied, self.calls)))


def span_parts(program: Program) -> tuple[SpanPart, ...]:
    """Returns the parts of the program's body, in order: attentions, and the calls between two of them. The result is
    empty for a program that cannot be divided: one with states, or with an op of attention other than `attention` and
    `span_attention`."""
    body = program.body
    places = [place for place, call in enumerate(body) if call.PART is OpPart.ATTENTION]
    if any(program.states()) or not all(isinstance(body[place], Attention | SpanAttention) for place in places):
        return ()
    edges = sorted({0, len(body), *places, *(place + 1 for place in places)})
    lives = _lives(program)
    return tuple(_part(body, begin, end, lives) for begin, end in zip(edges, edges[1:], strict=False))


def body_of(program: Program, part: SpanPart) -> Program:
    """Returns a part as a program without a head. Its values lie at the same places in memory as in the whole
    program."""
    return replace(program, body=part.calls, head=(), cuts=())


def head_of(program: Program) -> Program:
    """Returns the head as a program without a body. Its values lie at the same places in memory as in the whole
    program."""
    return replace(program, body=(), cuts=())


def kept_bytes(program: Program, rows: int) -> int:
    """Returns the most bytes that must be kept between two parts, for an image of `rows` rows."""
    return max((_bytes(part, rows) for part in span_parts(program)), default=0)


def span_cost(parts: Sequence[SpanPart], steps: StepCost, most_rows: int) -> SpanCost:
    """Returns the cost of computing an image's rows in a language model, one of these parts at a time. steps: predicts
    steps of the model. most_rows: the most rows of a step."""
    kinds = [PieceKind.SPAN_ATTENTION if part.attends else PieceKind.SPAN_PRODUCTS for part in parts]
    work = {kind: sum(part.work for part, own in zip(parts, kinds, strict=True) if own is kind) for kind in kinds}
    shares = [SpanShare(kind, part.work / work[kind]) for part, kind in zip(parts, kinds, strict=True)]
    return SpanCost(steps, tuple(shares), most_rows)


def _bytes(part: SpanPart, rows: int) -> int:
    return BYTES * rows * sum(root.width for root in {*part.begins, *part.kept})


def _lives(program: Program) -> dict[Value, tuple[int, int]]:
    """Returns for each value that owns memory the index of the first call that uses it, and of the last. A given value
    is written before all calls. A value that the head reads, or that is kept after the step, is read after the body."""
    lives: dict[Value, tuple[int, int]] = {value.root: (-1, -1) for value in program.given}
    end = len(program.body)
    for place, call in enumerate(program.body):
        for value in (*call.reads(), *writes(call)):
            first, last = lives.get(value.root, (place, place))
            lives[value.root] = first, max(last, place)
    for value in (*(value for call in program.head for value in call.reads()), *program.kept, program.logits):
        if value.root in lives:
            lives[value.root] = lives[value.root][0], end
    return lives


def _part(body: tuple[Op, ...], begin: int, end: int, lives: dict[Value, tuple[int, int]]) -> SpanPart:
    calls = body[begin:end]
    touched = dict.fromkeys(value.root for call in calls for value in (*call.reads(), *writes(call)))
    written = {value.root for call in calls for value in writes(call)}
    begins = tuple(root for root in touched if lives[root][0] < begin)
    kept = tuple(root for root, (first, last) in lives.items() if first < end <= last)
    return SpanPart(calls, begins, tuple(root for root in kept if root in written), kept)


def _multiplied(call: Op) -> int:
    weights: Iterator[Weight] = (item for item in call.operands() if isinstance(item, Weight))
    if call.PART is not OpPart.PRODUCT:
        return 0
    return sum(weight.rows * weight.columns * (call.experts_of_a_row if weight.experts else 1) for weight in weights)
