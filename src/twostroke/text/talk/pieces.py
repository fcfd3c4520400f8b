"""The pieces that a reader makes of a model's text: plain text, thoughts, and calls that grow."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class Said(Struct, frozen=True):
    """Text for the user."""

    text: str


class Thought(Struct, frozen=True):
    """Reasoning before the answer."""

    text: str


class CallBegan(Struct, frozen=True):
    """The name of call number `index` (dense from 0) is known. call_id: the id that the model wrote, "" for none."""

    index: int
    name: str
    call_id: str = ""


class CallArguments(Struct, frozen=True):
    """More of the JSON text of the arguments of call number `index`."""

    index: int
    text: str


Piece = Said | Thought | CallBegan | CallArguments


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Returns the pieces without empty ones, with neighbours of one kind (and one call) joined into one piece."""
    made: list[Piece] = []
    texts: list[str] = []

    def close() -> None:
        if texts and made:
            last = made[-1]
            if isinstance(last, CallArguments):
                made[-1] = CallArguments(last.index, "".join(texts))
            elif isinstance(last, Said | Thought):
                made[-1] = type(last)("".join(texts))
        texts.clear()

    for piece in pieces:
        if isinstance(piece, CallBegan):
            close()
            made.append(piece)
            continue
        if not piece.text:
            continue
        if not (texts and made and _goes_on(made[-1], piece)):
            close()
            made.append(piece)
        texts.append(piece.text)
    close()
    return made


def _goes_on(last: Piece, piece: Piece) -> bool:
    same = type(last) is type(piece)
    return same and (not isinstance(piece, CallArguments) or getattr(last, "index", None) == piece.index)
