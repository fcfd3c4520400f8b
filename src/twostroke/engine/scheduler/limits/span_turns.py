"""Rows of an image that see each other go through the language model in pieces while other sequences decode.

    wanted = turns.before(sequence, wanted)              stops at a span while another sequence's is computed
    num_tokens = turns.limit(sequence, num_tokens, step, limiters)     is asked after all limiters
    work = turns.work(planned, step)                     the pieces that the step computes; None for a usual chunk
    turns.left(sequence)                                 the pages are gone, so the sequence begins again

In each step, a span gets the seconds that the decoding sequences leave. Its rows count as computed when the last piece
is done. When no sequence decodes, a span is computed whole, as a part of a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence as Positions
from math import inf

from msgspec import Struct

from twostroke.cost.span_pieces import SpanCost, SpanWalk
from twostroke.engine.scheduler.estimates.piece_times import PieceTimes
from twostroke.engine.scheduler.limits.limits import Limiter, SpanTurn, StepLoad, time_left_s
from twostroke.engine.scheduler.limits.whole_spans import WholeSpans, cut_span
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.encode import SpanPiece
from twostroke.types.plan import PlannedSequence, Role, SpanWork


class OpenSpan(Struct):
    """An image span of which some pieces are still to be computed. end: the position after its last row. walk: gives
    these pieces in order."""

    sequence: Sequence
    end: int
    walk: SpanWalk


class SpanTurns:
    """Decides when an image span is computed in pieces, over several steps. Only one span at a time is, because the
    values between two pieces are kept for one span only.

    whole: the rule for spans that are computed in one step. times: corrects predictions of pieces. cost: predicts
    pieces; None where the executor computes no pieces.
    """

    def __init__(self, whole: WholeSpans, times: PieceTimes) -> None:
        self._whole, self._times = whole, times
        self.cost: SpanCost | None = None
        self._open: OpenSpan | None = None

    def is_open(self, sequence: Sequence) -> bool:
        """Returns True when a span of this sequence is being computed in pieces, and pieces are left."""
        return self._open is not None and self._open.sequence is sequence

    def before(self, sequence: Sequence, wanted_tokens: int) -> int:
        """Returns how many of the wanted positions the step may compute: all of them as a rule. While a span of another
        sequence is computed in pieces, only the positions before this sequence's next span may be computed."""
        if self._open is None or self._open.sequence is sequence or sequence.role is Role.DECODE:
            return wanted_tokens
        start = sequence.computed
        firsts = [max(start, each.first) for each in sequence.request.images if each.together and each.end > start]
        return min(wanted_tokens, min(firsts, default=start + wanted_tokens) - start)

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad, limiters: Positions[Limiter] = ()) -> int:
        """Returns how many positions of a sequence the step may compute. When the step computes pieces of a span, this
        is the number of the span's rows, although these pieces are a part of the model only. Without pieces, WholeSpans
        limits the chunk."""
        start, cost = sequence.computed, self.cost
        if self._open is not None and self._open.sequence is sequence:
            return self._turn(sequence, self._open.end, self._open.walk, step, limiters) if wanted_tokens else 0
        cut = cut_span(sequence, wanted_tokens)
        if cut is None or cut.first > start or cost is None:
            return self._whole.limit(sequence, wanted_tokens, step)
        rows, left_s = cut.end - start, time_left_s(step, limiters)
        if left_s == inf and rows <= self._whole.max_step_tokens:
            return self._whole.limit(sequence, wanted_tokens, step)
        return self._turn(sequence, cut.end, cost.walk(start, rows), step, limiters)

    def _turn(self, sequence: Sequence, end: int, walk: SpanWalk, step: StepLoad, limiters: Positions[Limiter]) -> int:
        """Let the step compute pieces of a span in the time that is left, and return the span's rows. If the time is
        too short for any piece, a step that has rows of other prompts computes none, and 0 is returned. A step without
        such rows computes the smallest piece nevertheless."""
        left_s, least = time_left_s(step, limiters) - step.encode_s, not step.num_prefill_tokens
        if not least and not walk.fits(left_s, self._times.pace()):
            return 0
        step.span, step.full = SpanTurn(sequence, end, walk, left_s, least), True
        return end - sequence.computed

    def work(self, planned: PlannedSequence, step: StepLoad) -> SpanWork | None:
        """Returns the pieces that the step computes of the sequence that is being planned; None where it computes the
        positions as a whole."""
        turn, pace = step.span, self._times.pace()
        if turn is None or turn.sequence.request is not planned.request:
            return None
        pieces, left_s = list[SpanPiece](), turn.left_s
        while (piece := turn.walk.take(left_s, least=turn.least and not pieces, pace=pace)) is not None:
            pieces.append(piece)
            left_s -= piece.seconds * pace.of(piece.kind)
        step.span_s = turn.left_s - left_s if turn.left_s < inf else 0.0
        self._open = None if turn.walk.done else OpenSpan(turn.sequence, turn.end, turn.walk)
        own = planned if turn.walk.done else planned._replace(samples=False, scores=range(0))
        return SpanWork(own, tuple(pieces), turn.walk.done)

    def left(self, sequence: Sequence) -> None:
        """Note that a sequence has ended or lost its pages."""
        if self.is_open(sequence):
            self._open = None
