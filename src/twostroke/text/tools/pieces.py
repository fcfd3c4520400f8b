"""What a reader makes of a model's text: plain text, thoughts, and calls that grow.

Knows: strings.
Must not know: the styles, JSON shapes of any API.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct


class Said(Struct, frozen=True):
    """Text for the user."""

    text: str


class Thought(Struct, frozen=True):
    """Reasoning before the answer."""

    text: str


class CallBegan(Struct, frozen=True):
    """Call number `index` (dense from 0) has a name now."""

    index: int
    name: str


class CallArguments(Struct, frozen=True):
    """More of the JSON text of its arguments."""

    index: int
    text: str


Piece = Said | Thought | CallBegan | CallArguments


class Reader(Protocol):
    """Pieces joined are a property of the text alone: how it is cut into feeds does not matter."""

    def feed(self, text: str) -> list[Piece]:
        """Take more text; what is sure now."""

    def finish(self) -> list[Piece]:
        """What was held back."""


class Plain:
    """Everything is said."""

    def feed(self, text: str) -> list[Piece]:
        """See Reader."""
        return [Said(text)] if text else []

    def finish(self) -> list[Piece]:
        """See Reader."""
        return []


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces, with neighbours of one kind (and one call) made into one piece, and empty ones left out."""
    made: list[Piece] = []
    for piece in pieces:
        last = made[-1] if made else None
        if isinstance(piece, CallBegan):
            made.append(piece)
        elif not piece.text:
            continue
        elif isinstance(piece, CallArguments) and isinstance(last, CallArguments) and last.index == piece.index:
            made[-1] = CallArguments(piece.index, last.text + piece.text)
        elif isinstance(piece, Said) and isinstance(last, Said):
            made[-1] = Said(last.text + piece.text)
        elif isinstance(piece, Thought) and isinstance(last, Thought):
            made[-1] = Thought(last.text + piece.text)
        else:
            made.append(piece)
    return made
