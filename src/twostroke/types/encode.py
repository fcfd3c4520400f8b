"""The pieces in which an image is encoded, and in which its rows go through the language model: their kinds, and how
long they take."""

from __future__ import annotations

import enum

from msgspec import Struct


class PieceKind(enum.IntEnum):
    """PATCHES: pixels become rows, and the ops before the first attention. PRODUCTS: the ops between two attentions and
    after the last one, where each row depends on itself alone. ATTENTION: rows that see all rows of the square.
    WINDOWS: rows that see a window. HEAD: image rows. SHEET: image rows of several squares, read line by line.
    SPAN_PRODUCTS, SPAN_ATTENTION: the same parts of a language model, over rows of an image that see each other. FOLD:
    groups of patches become one row each, and the ops up to the next attention."""

    PATCHES = 0
    PRODUCTS = 1
    ATTENTION = 2
    WINDOWS = 3
    HEAD = 4
    SHEET = 5
    SPAN_PRODUCTS = 6
    SPAN_ATTENTION = 7
    FOLD = 8


class PieceTime(Struct, frozen=True):
    """A piece that was computed. predicted_s: the seconds that the cost model predicts. seconds: those that it took."""

    kind: PieceKind
    predicted_s: float
    seconds: float


class SpanPiece(Struct, frozen=True):
    """Rows [first, end) of one part of a language model, counted from the first row of a span. kind: SPAN_PRODUCTS or
    SPAN_ATTENTION. seconds: the predicted time of this piece."""

    part: int
    kind: PieceKind
    first: int
    end: int
    seconds: float


class EncodePace(Struct, frozen=True):
    """factors: for each kind of piece, in the order of PieceKind, how many times longer than predicted it may take."""

    factors: tuple[float, ...] = (1.0,) * len(PieceKind)

    def of(self, kind: PieceKind) -> float:
        """Returns the factor of a kind."""
        return self.factors[kind]


AS_PREDICTED = EncodePace()
