"""Divides the encode of an image into pieces. A piece has as many rows of one part of the encoder, such as the
attention of one layer, as a step has time for.

    walk = cost.walk(rows)
    while (piece := walk.take(seconds_left, least=True)) is not None: ...

The runner and the simulator take the same pieces for the same seconds. The rows have the same bits for every division.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from twostroke.types.encode import AS_PREDICTED, EncodePace, PieceKind

LEAST_ROWS = 32
"""The rows of the smallest piece, which is computed even in a step that has no time left."""


PieceSeconds = Callable[[PieceKind, int, int], float]
"""A function that predicts the seconds of a piece. Its arguments are the kind, the rows of the piece, and all rows of
its part of the encoder."""


class EncodePart(NamedTuple):
    """One part of the encoder (such as the attention of one layer) for one crop of an image. rows: the number of all
    rows of the part."""

    kind: PieceKind
    rows: int


class EncodePiece(Struct, frozen=True):
    """Rows [first, end) of one part of the encoder, which one step computes. part: the index of the part; the head has
    the last one. rows: all rows of the part. seconds: the predicted time of this piece."""

    part: int
    kind: PieceKind
    first: int
    end: int
    rows: int
    seconds: float

    @property
    def ends_part(self) -> bool:
        """Whether this piece has the last rows of its part of the encoder, so that the next part can begin."""
        return self.end == self.rows


class EncodeWalk:
    """Divides the encode of one image into pieces: each call of `take` returns the next piece. parts: the encoder's
    parts in order, repeated for each crop of the image. seconds: predicts the time of a piece."""

    def __init__(self, parts: Sequence[EncodePart], seconds: PieceSeconds) -> None:
        self._parts, self._seconds = tuple(parts), seconds
        self._known: dict[tuple[EncodePart, int], float] = {}
        self._part = self._row = 0

    @property
    def done(self) -> bool:
        """Whether `take` has returned all pieces."""
        return self._part == len(self._parts)

    def is_windowed(self, part: int) -> bool:
        """Whether this part of the encoder reads K and V of window attention, or writes them for the next part."""
        return any(each.kind is PieceKind.WINDOWS for each in self._parts[part : part + 2])

    def seconds_by_kind(self) -> dict[PieceKind, float]:
        """Returns the predicted seconds of the whole encode, summed up for each kind of part. Each part is predicted as
        one piece."""
        found: dict[PieceKind, float] = {}
        for part in self._parts:
            found[part.kind] = found.get(part.kind, 0.0) + self._predicted(part, part.rows)
        return found

    def take(self, most_s: float, *, least: bool, pace: EncodePace = AS_PREDICTED) -> EncodePiece | None:
        """Returns the next piece, the largest that takes at most `most_s` seconds; None when there is none.

        least: whether a piece of LEAST_ROWS is taken even when it takes longer. pace: the ratio of a piece's real time
        to its predicted time.
        """
        if self.done:
            return None
        part = self._parts[self._part]
        kind, rows = part
        count = self._within(part, rows - self._row, most_s / pace.of(kind))
        if not count:
            if not least:
                return None
            count = min(LEAST_ROWS, rows - self._row)
        begin, self._row = self._row, self._row + count
        piece = EncodePiece(self._part, kind, begin, self._row, rows, self._predicted(part, count))
        if piece.ends_part:
            self._part, self._row = self._part + 1, 0
        return piece

    def _within(self, part: EncodePart, left: int, most_s: float) -> int:
        """Returns the most rows that are predicted to take at most `most_s` seconds: all `left` rows, or a multiple of
        LEAST_ROWS."""
        if self._predicted(part, left) <= most_s:
            return left
        low, high = 0, -(-left // LEAST_ROWS)
        while high - low > 1:
            middle = (low + high) // 2
            if self._predicted(part, middle * LEAST_ROWS) <= most_s:
                low = middle
            else:
                high = middle
        return low * LEAST_ROWS

    def _predicted(self, part: EncodePart, rows: int) -> float:
        found = self._known.get((part, rows))
        if found is None:
            found = self._known[part, rows] = self._seconds(part.kind, rows, part.rows)
        return found
