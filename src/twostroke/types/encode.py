"""The pieces in which an image is encoded, and in which its rows go through the language model: their kinds, and how
long they take."""

from __future__ import annotations

import enum

from msgspec import Struct


class PieceKind(enum.IntEnum):
    """What one piece of the work on an image computes.

    PATCHES: pixels become rows, which go through the ops before the first attention.
    PRODUCTS: rows go through the ops between two attentions, or after the last one. Each row depends on itself alone.
    ATTENTION: rows go through an attention in which a row sees all rows that are encoded together with it.
    WINDOWS: rows go through an attention in which a row sees only the rows of its window.
    HEAD: the last ops of the encoder make the image rows that the language model gets.
    SHEET: the image rows of sub-images that were encoded alone are put into the line order of the whole image.
    SPAN_PRODUCTS, SPAN_ATTENTION: the same as PRODUCTS and ATTENTION, for image rows in the language model.
    FOLD: groups of patches become one row each, and these rows go through the ops up to the next attention.
    """

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
    """A piece of the language model's work on a span: the rows of an image that see each other. part: the number of the
    part of the model that computes the piece: an attention, or the ops between two attentions. first, end: its rows
    [first, end), counted from the first row of the span. kind: SPAN_PRODUCTS or SPAN_ATTENTION. seconds: the predicted
    time of this piece."""

    part: int
    kind: PieceKind
    first: int
    end: int
    seconds: float


class EncodePace(Struct, frozen=True):
    """Measured corrections of the predicted times of an image's pieces. factors: for each kind of piece, in the order
    of PieceKind, a ratio measured / predicted time that few pieces of this kind exceed."""

    factors: tuple[float, ...] = (1.0,) * len(PieceKind)

    def of(self, kind: PieceKind) -> float:
        """Returns the factor by which the predicted time of a piece of this kind is multiplied, so that few pieces take
        longer."""
        return self.factors[kind]


AS_PREDICTED = EncodePace()
