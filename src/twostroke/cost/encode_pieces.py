"""Divides an encode into pieces. A piece has as many rows of one part of the encoder as a step has time for.

    walk = cost.walk(rows)
    while (piece := walk.take(seconds_left, least=True, pace=pace)) is not None: ...

The runner and the simulator take the same pieces for the same seconds. The rows have the same bits for every division.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from twostroke.types.encode import AS_PREDICTED, EncodePace, PieceKind

LEAST_ROWS = 32
"""The rows of the smallest piece, which is computed even in a step that has no time left."""


PieceSeconds = Callable[[PieceKind, int, int], float]
"""Called with the kind, the rows of a piece and the patches of the whole square; returns the predicted seconds."""


class EncodePiece(Struct, frozen=True):
    """Rows [first, end) of one part of the encoder. part: the index of the part; the head has the last one. rows: all
    rows of the part. seconds: the predicted time of this piece."""

    part: int
    kind: PieceKind
    first: int
    end: int
    rows: int
    seconds: float

    @property
    def ends_part(self) -> bool:
        """Whether this piece is the last one of its part."""
        return self.end == self.rows


class EncodeWalk:
    """kinds: the kinds of the encoder's parts, in order. patches: the rows of every part but the head. rows: the rows
    of the head. sheet: the rows of a sheet."""

    def __init__(
        self, kinds: tuple[PieceKind, ...], patches: int, rows: int, seconds: PieceSeconds, sheet: int = 0
    ) -> None:
        self._kinds, self._patches, self._seconds = kinds, patches, seconds
        self._rows = {PieceKind.HEAD: rows, PieceKind.SHEET: sheet}
        self._known: dict[tuple[PieceKind, int], float] = {}
        self._part = self._row = 0

    @property
    def done(self) -> bool:
        """Whether all pieces were taken."""
        return self._part == len(self._kinds)

    def is_windowed(self, part: int) -> bool:
        """Whether the K and V that this part reads, or writes for the next part, are those of windows."""
        return PieceKind.WINDOWS in self._kinds[part : part + 2]

    def seconds_by_kind(self) -> dict[PieceKind, float]:
        """Returns the predicted seconds of all pieces of each kind, where every part is one piece."""
        counts = Counter(self._kinds)
        return {kind: count * self._predicted(kind, self._rows_of(kind)) for kind, count in counts.items()}

    def take(self, most_s: float, *, least: bool, pace: EncodePace = AS_PREDICTED) -> EncodePiece | None:
        """Returns the largest next piece that takes at most `most_s` seconds; None when there is none.

        least: whether a piece of LEAST_ROWS is taken even when it takes longer. pace: the ratio of a piece's real time
        to its predicted time.
        """
        if self.done:
            return None
        kind = self._kinds[self._part]
        rows = self._rows_of(kind)
        count = self._within(kind, rows - self._row, most_s / pace.of(kind))
        if not count:
            if not least:
                return None
            count = min(LEAST_ROWS, rows - self._row)
        begin, self._row = self._row, self._row + count
        piece = EncodePiece(self._part, kind, begin, self._row, rows, self._predicted(kind, count))
        if piece.ends_part:
            self._part, self._row = self._part + 1, 0
        return piece

    def _rows_of(self, kind: PieceKind) -> int:
        return self._rows.get(kind, self._patches)

    def _within(self, kind: PieceKind, left: int, most_s: float) -> int:
        """Returns the most rows that are predicted to take at most `most_s` seconds: all `left` rows, or a multiple of
        LEAST_ROWS."""
        if self._predicted(kind, left) <= most_s:
            return left
        low, high = 0, -(-left // LEAST_ROWS)
        while high - low > 1:
            middle = (low + high) // 2
            if self._predicted(kind, middle * LEAST_ROWS) <= most_s:
                low = middle
            else:
                high = middle
        return low * LEAST_ROWS

    def _predicted(self, kind: PieceKind, rows: int) -> float:
        found = self._known.get((kind, rows))
        if found is None:
            found = self._known[kind, rows] = self._seconds(kind, rows, self._patches)
        return found
