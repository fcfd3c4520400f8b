"""Computes those rows of an image that see each other. The work is divided into pieces, which are spread over several
steps.

    part      calls before an attention, in blocks of rows | the attention, of all rows | calls after it | ...
    kept      the values that later parts read, of all rows, until the next piece

K and V are written to the sequence's own pages, layer by layer. Between two pieces, other sequences compute whole steps
in the same memory. So the values that later pieces read are copied out of this memory and back. The bits are those of
one step: a row's arithmetic depends on that row, and in attention on K and V, which are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import Struct

from twostroke.cost.shape import StepCost
from twostroke.cost.span_pieces import SpanCost
from twostroke.engine.executor import Executor
from twostroke.engine.faults.isolate import joined
from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.passes.span_parts import SpanPart, span_cost
from twostroke.ops.program.op import Op
from twostroke.ops.program.values import ROW_ENDS, Value
from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.runner.forward import Forward
from twostroke.runner.images.image_encoder import ImageRows
from twostroke.runner.step_inputs import write_sequences
from twostroke.types.encode import PieceTime, SpanPiece
from twostroke.types.plan import Plan, PlannedSequence, SpanWork
from twostroke.types.result import StepResult

ONE_SEQUENCE = StepSizes(0, 1, 0)


class KeptValues:
    """Stores the numbers of all rows of one span, for those values of the program that own memory. memory: the memory
    of steps."""

    def __init__(self, memory: StepMemory) -> None:
        self._memory = memory
        self._arrays: dict[Value, F32Array] = {}
        self._rows = 0

    def begin(self, rows: int) -> None:
        """Drops all stored numbers, and prepares for a span of `rows` rows."""
        self._arrays, self._rows = {}, rows

    def keep(self, root: Value, rows: F32Array, first: int = 0) -> None:
        """Stores rows of a value, from row `first` on."""
        made = self._arrays.get(root)
        if made is None:
            made = self._arrays[root] = np.empty((self._rows, root.width), np.float32)
        made[first : first + len(rows)] = rows

    def only(self, roots: Sequence[Value]) -> None:
        """Forgets all values but these."""
        self._arrays = {root: rows for root, rows in self._arrays.items() if root in roots}

    def put_back(self, roots: Sequence[Value], first: int, sizes: StepSizes) -> None:
        """Copies stored rows, from row `first` on, back into the memory of a step of these sizes. roots: the values
        whose rows are copied."""
        for root in roots:
            self._of_step(root, sizes)[:] = self._arrays[root][first : first + sizes.tokens]

    def take_out(self, roots: Sequence[Value], first: int, sizes: StepSizes) -> None:
        """Copies the rows of these values from the memory of a step of these sizes, and stores them from row `first`
        on."""
        for root in roots:
            self.keep(root, self._of_step(root, sizes), first)

    def _of_step(self, root: Value, sizes: StepSizes) -> F32Array:
        return self._memory.value(root, sizes).reshape(sizes.tokens, root.width)

    def view(self, value: Value) -> F32Array:
        """Returns the array that stores all rows of a value. Makes this array first where the value is not stored yet.
        """
        if value.root not in self._arrays:
            self._arrays[value.root] = np.empty((self._rows, value.root.width), np.float32)
        whole = self._arrays[value.root][:, value.offset : value.offset + value.width]
        return whole.reshape(self._rows, *value.shape)


class KeptHead:
    """Computes logits from hidden states that were stored earlier, without the layers. Satisfies `Forward`. head: the
    program that makes logits. roots: the values that this program reads. first: the index of the stored row that
    becomes row 0 of the step."""

    def __init__(self, head: Forward, kept: KeptValues, roots: Sequence[Value]) -> None:
        self._head, self._kept, self._roots = head, kept, roots
        self.first = 0

    def __call__(self, sizes: StepSizes) -> F32Array:
        self._kept.put_back(self._roots, self.first, sizes)
        return self._head(sizes)

    @property
    def max_rows(self) -> int:
        return self._head.max_rows

    def logits(self, rows: I32Array, sizes: StepSizes) -> F32Array:
        return self._head.logits(rows, sizes)


class SpanProgram(Struct, frozen=True, eq=False):
    """A language model that is divided at its attentions. parts: its parts in order, as `span_parts` makes them.
    bodies: each part as a program; a part that is one attention is run as a single op instead. ops: has a method for
    each op, on arrays."""

    parts: Sequence[SpanPart]
    bodies: Sequence[Forward]
    ops: Any


class SpanRunner:
    """Computes the rows of an image that see each other (a span) in pieces, in order. It computes one span at a time:
    if another span begins, an unfinished one is dropped.

    images: writes image rows into the inputs of a step, and marks which rows of the step they are. head: runs a step
    that only computes logits, for the rows of the span that need them.
    """

    def __init__(
        self,
        program: SpanProgram,
        memory: StepMemory,
        images: ImageRows,
        kept: KeptValues,
        head: Executor,
        kept_head: KeptHead,
        clock: Callable[[], float],
    ) -> None:
        self._program, self._memory, self._images, self._kept = program, memory, images, kept
        self._head, self._kept_head, self._clock = head, kept_head, clock
        self._next: tuple[str, int, int, int] | None = None
        self._end = 0

    def cost(self, steps: StepCost) -> SpanCost:
        """Returns an object that predicts the time of the pieces into which an image's rows are divided. steps:
        predicts steps of the program."""
        return span_cost(self._program.parts, steps, self._memory.sizes.max_step_tokens)

    def execute(self, work: SpanWork) -> StepResult:
        """Computes pieces of a span. After the last piece, the result also has the tokens and log probabilities of the
        sequence. Raises ValueError where a piece does not follow the piece that was computed last."""
        planned, times = work.planned, list[PieceTime]()
        begin_s = self._clock()
        if (work.pieces[0].part, work.pieces[0].first) == (0, 0):
            self._begin(planned)
        encodes = self._images.kept.take(self._clock() - begin_s)
        for piece in work.pieces:
            piece_s = self._clock()
            self._compute(planned, piece)
            times.append(PieceTime(piece.kind, piece.seconds, self._clock() - piece_s))
        model_s = self._clock() - begin_s
        computed = StepResult({}, model_s=model_s, encodes=encodes, span_times=tuple(times))
        return joined([computed, *self._heads(planned)]) if work.ends else computed

    def _begin(self, planned: PlannedSequence) -> None:
        given, self._end = self._images.of_span(planned)
        self._kept.begin(planned.num_tokens)
        for value, rows in given.items():
            self._kept.keep(value, rows)
        self._next = (planned.request.request_id, planned.start, 0, 0)

    def _compute(self, planned: PlannedSequence, piece: SpanPiece) -> None:
        place = (planned.request.request_id, planned.start, piece.part, piece.first)
        if place != self._next:
            raise ValueError(f"the piece {place} does not follow {self._next}")
        self._next = None  # a piece that fails is not gone on from
        part = self._program.parts[piece.part]
        if part.attends:
            self._attend(planned, part.calls[0])
        else:
            self._make(planned, piece, part)
        whole = piece.end == planned.num_tokens
        if whole:
            self._kept.only(part.kept)
        self._next = (*place[:2], piece.part + whole, 0 if whole else piece.end)

    def _make(self, planned: PlannedSequence, piece: SpanPiece, part: SpanPart) -> None:
        """Runs one part of the model, the calls between two attentions, for the rows of one piece. Their inputs are
        copied from KeptValues into the step's memory, and their results are copied back."""
        own = _block(planned, piece.first, piece.end)
        sizes = write_sequences((own,), self._memory)
        self._images.mark(sizes.tokens)
        self._kept.put_back(part.begins, piece.first, sizes)
        self._program.bodies[piece.part](sizes)
        self._kept.take_out(part.ends, piece.first, sizes)

    def _attend(self, planned: PlannedSequence, call: Op) -> None:
        """Computes one attention of the model for all rows of a span in one call, even if the span has more rows than a
        step may have. So the operands are arrays of KeptValues in place of the step's memory."""
        rows, memory = planned.num_tokens, self._memory
        write_sequences((_block(planned, rows - 1, rows),), memory)
        memory.batch.row_starts[1] = rows
        ends = np.full(rows, self._end, np.int32)
        operands = [
            self._kept.view(item) if isinstance(item, Value) else ends if item == ROW_ENDS else found
            for item, found in zip(call.operands(), memory.operands(call, ONE_SEQUENCE), strict=True)
        ]
        getattr(self._program.ops, call.NAME)(*operands)

    def _heads(self, planned: PlannedSequence) -> Iterator[StepResult]:
        """Yields the results of the rows of a span that need logits. Each result is that of at most max_step_tokens
        rows."""
        scores, most = planned.scores, self._memory.sizes.max_step_tokens
        begin = scores.start if scores else planned.end - planned.samples
        for first in range(begin, planned.end, most):
            end = min(first + most, planned.end)
            own = _block(planned, first - planned.start, end - planned.start)._replace(
                samples=planned.samples and end == planned.end,
                scores=range(max(first, scores.start), min(end, scores.stop)),
            )
            if own.logit_rows:
                self._kept_head.first = first - planned.start
                yield replace(self._head.execute(Plan(0, (own,))), delayed_s=0.0)


class ImageSteps(Struct, frozen=True, eq=False):
    """The objects that work on images in a language model's steps. rows: writes image rows into the inputs of a step.
    spans: computes, in pieces, image rows that see each other in both directions; None for a model without such
    rows."""

    rows: ImageRows
    spans: SpanRunner | None


def _block(planned: PlannedSequence, first: int, end: int) -> PlannedSequence:
    """Returns rows [first, end) of a planned sequence, without logits."""
    start = planned.start + first
    return planned._replace(start=start, num_tokens=end - first, samples=False, scores=range(0))
