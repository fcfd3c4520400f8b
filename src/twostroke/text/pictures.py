"""Images in a conversation while its template renders: a mark in place of each, then what the model's prompt has there.

A mark is digits that nobody can guess, as in quoting.py. Templates that write images themselves get a part of the type
image in its place; of others, the mark is replaced afterwards.

Knows: places in texts.
Must not know: pixels, token ids, templates' syntax.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from twostroke.types.errors import InvalidRequest

if TYPE_CHECKING:
    from twostroke.types.images import ImageSpan

DIGITS, NUMBER = 24, 6


class PlacedImages(Protocol):
    """The images of a prompt whose text is known."""

    def spans(self, token_ids: Sequence[int]) -> tuple[ImageSpan, ...]:
        """Where their rows go. Raises InvalidRequest where the ids have other places for them."""


class PictureMarks:
    """The marks of one prompt; for one thread. written: what templates of the model write for an image."""

    def __init__(self, written: str) -> None:
        self.written = written
        self._mark = str(secrets.randbelow(9 * 10 ** (DIGITS - 1)) + 10 ** (DIGITS - 1))
        self._find = re.compile(f"{self._mark}([0-9]{{{NUMBER}}})")
        self._order: list[int] = []

    def mark(self, number: int) -> str:
        """What stands for an image in a message's text."""
        return f"{self._mark}{number:0{NUMBER}}"

    def as_parts(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages with parts of the type image in place of marks. The order of the images is kept from here on."""
        self._order = []
        return [{**each, "content": self._parts_of(each.get("content"))} for each in messages]

    def _parts_of(self, content: Any) -> Any:
        if isinstance(content, str):
            return self._split(content) if self._mark in content else content
        if not isinstance(content, list):
            return content
        made: list[Any] = []
        for part in content:
            text = part.get("text") if isinstance(part, dict) else None
            made += self._split(text) if isinstance(text, str) and self._mark in text else [part]
        return made

    def _split(self, text: str) -> list[dict[str, Any]]:
        """Texts and images. A message's parts were joined by line ends: those next to an image are taken out again."""
        pieces = self._find.split(text)
        made: list[dict[str, Any]] = []
        for place in range(0, len(pieces), 2):
            own = pieces[place]
            own = own.removeprefix("\n") if place else own
            own = own.removesuffix("\n") if place + 1 < len(pieces) else own
            if own:
                made.append({"type": "text", "text": own})
            if place + 1 < len(pieces):
                self._order.append(int(pieces[place + 1]))
                made.append({"type": "image"})
        return made

    def replaced(self, text: str, texts: Sequence[str]) -> tuple[str, list[int]]:
        """A rendered text with texts[i] where image i stands, and the images in their order there.

        Raises InvalidRequest where the template has placed another number of images.
        """
        order = [*self._order]

        def note(found: re.Match[str]) -> str:
            order.append(int(found[1]))
            return self.written

        pieces = self._find.sub(note, text).split(self.written)
        if len(pieces) - 1 != len(texts) or sorted(order) != list(range(len(texts))):
            raise InvalidRequest(
                f"The chat template has placed {len(pieces) - 1} of {len(texts)} images.",
                param="messages",
                why=f"It must write {self.written} once for each image.",
                fix="Send the images in a user's message, and no control tokens in texts.",
            )
        made = [pieces[0]]
        for number, piece in zip(order, pieces[1:], strict=True):
            made += [texts[number], piece]
        return "".join(made), order
