"""Divides the work on image rows that see each other into pieces, which several steps compute. Such rows, the span of
an image in a prompt, go through a language model together.

walk = cost.walk(start, rows)                    the pieces of one image, in order
piece = walk.take(seconds_left, least=False)     the next piece that fits into the seconds; None when there is none

The rows of a span see each other in attention alone. So an attention is one piece of all rows, and the calls between
two attentions may be computed in blocks of rows. The rows have the same bits for every division.
"""

from __future__ import annotations

from msgspec import Struct

from twostroke.cost.encode_pieces import LEAST_ROWS
from twostroke.cost.shape import Segment, StepCost
from twostroke.types.encode import AS_PREDICTED, EncodePace, PieceKind, SpanPiece
from twostroke.types.plan import Role

OF_ROWS = ("weights", "other")
"""The names of the parts of a step's prediction whose time depends only on the number of rows, not on the positions
that the rows see."""


class SpanShare(Struct, frozen=True):
    """One part of a language model: one attention, or the ops between two attentions. kind: SPAN_ATTENTION or
    SPAN_PRODUCTS. share: its share of the work of all parts of this kind, from 0 to 1."""

    kind: PieceKind
    share: float


class SpanCost(Struct, frozen=True):
    """Predicts how long the rows of an image take in a language model, piece by piece (see the module). cost: predicts
    steps of the language model. parts: the model's attentions and the ops between them, in order. most_rows: the most
    rows that one piece of the ops between two attentions may have."""

    cost: StepCost
    parts: tuple[SpanShare, ...]
    most_rows: int

    def walk(self, start: int, rows: int) -> SpanWalk:
        """Returns a SpanWalk, which divides the work on an image into pieces for several steps. The image's rows have
        positions [start, start + rows)."""
        return SpanWalk(self, start, rows)

    def least_s(self, rows: int) -> float:
        """Returns the least seconds that a step must have for each piece to fit: the predicted time of the slowest
        among the smallest pieces of all parts. rows: the number of the image's rows; they are assumed to begin at
        position 0."""
        least = min(LEAST_ROWS, rows, self.most_rows)
        return max(self.seconds(place, 0, rows, least) for place in range(len(self.parts)))

    def seconds(self, part: int, start: int, rows: int, count: int) -> float:
        """Returns the predicted seconds of one piece of a part (an index into `parts`) for an image with `rows` rows
        from position `start` on. A piece of products has `count` of these rows; a piece of attention always has all."""
        own = self.parts[part]
        if own.kind is PieceKind.SPAN_PRODUCTS:
            made = self.cost.predict([Segment.prefill(0, count, False)]).parts
            return own.share * sum(each.seconds for each in made if each.name in OF_ROWS)
        whole = Segment(start, rows, False, Role.PREFILL, later=rows * (rows - 1) // 2)
        made = self.cost.predict([whole]).parts
        return own.share * sum(each.seconds for each in made if each.name == "attention")


class SpanWalk:
    """Divides the rows of one image into pieces, in order: each call of `take` returns the next piece. start: the first
    position. rows: the number of rows."""

    def __init__(self, cost: SpanCost, start: int, rows: int) -> None:
        self._cost, self._start, self._rows = cost, start, rows
        self._known: dict[tuple[int, int], float] = {}
        self._part = self._row = 0

    @property
    def done(self) -> bool:
        """Whether all pieces were taken."""
        return self._part == len(self._cost.parts)

    def fits(self, most_s: float, pace: EncodePace) -> bool:
        """Returns whether `take` would find a next piece for `most_s` seconds. pace: corrects the predicted times by
        measured ones."""
        return not self.done and self._within(most_s / pace.of(self._kind)) > 0

    def take(self, most_s: float, *, least: bool, pace: EncodePace = AS_PREDICTED) -> SpanPiece | None:
        """Returns the largest next piece that takes at most `most_s` seconds; None when there is none. least: whether
        the smallest piece is returned even when it takes longer. pace: corrects the predicted times by measured
        ones."""
        if self.done:
            return None
        count = self._within(most_s / pace.of(self._kind)) or (self._least if least else 0)
        if not count:
            return None
        part, kind, first = self._part, self._kind, self._row
        self._row += count
        piece = SpanPiece(part, kind, first, self._row, self._predicted(count))
        if self._row == self._rows:
            self._part, self._row = part + 1, 0
        return piece

    @property
    def _kind(self) -> PieceKind:
        return self._cost.parts[self._part].kind

    @property
    def _least(self) -> int:
        """The rows of the smallest next piece."""
        left = self._rows - self._row
        return left if self._kind is PieceKind.SPAN_ATTENTION else min(LEAST_ROWS, left, self._cost.most_rows)

    def _within(self, most_s: float) -> int:
        """Returns the most rows that are predicted to take at most `most_s` seconds: all that are left, or a multiple
        of LEAST_ROWS."""
        if self._kind is PieceKind.SPAN_ATTENTION:
            return self._rows if self._predicted(self._rows) <= most_s else 0
        most = min(self._rows - self._row, self._cost.most_rows)
        if self._predicted(most) <= most_s:
            return most
        low, high = 0, -(-most // LEAST_ROWS)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._predicted(middle * LEAST_ROWS) <= most_s else (low, middle)
        return low * LEAST_ROWS

    def _predicted(self, count: int) -> float:
        found = self._known.get((self._part, count))
        if found is None:
            found = self._cost.seconds(self._part, self._start, self._rows, count)
            self._known[self._part, count] = found
        return found
