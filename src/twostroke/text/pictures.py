"""Images in a conversation while its template renders: a mark in place of each, then what the model's prompt has there.

A mark is digits that nobody can guess, as in quoting.py. Templates that write images themselves get a part of the type
image in its place; of others, the mark is replaced afterwards.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from twostroke.text.history.abilities import Abilities
from twostroke.types.errors import InvalidRequest

if TYPE_CHECKING:
    from twostroke.types.images import ImageSpan

DIGITS, NUMBER = 24, 6


class PlacedImages(Protocol):
    """The images of a prompt whose text is known."""

    def spans(self, token_ids: Sequence[int]) -> tuple[ImageSpan, ...]:
        """Where their rows go. Raises InvalidRequest where the ids have other places for them."""


class SeeingTemplate(Protocol):
    """A chat template that takes the marks of images."""

    @property
    def abilities(self) -> Abilities:
        """What of a conversation with tools it shows."""

    def joint(self, role: str) -> str:
        """What stands between two parts of a message of this role."""

    @property
    def render(self) -> Callable[..., str]:
        """Makes the text of a conversation. Raises InvalidRequest."""


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

    def as_parts(self, messages: list[dict[str, Any]], joint: Callable[[str], str]) -> list[dict[str, Any]]:
        """The messages with parts of the type image in place of marks. The order of the images is kept from here on.

        joint(role): what joined the parts of a message of this role.
        """
        self._order = []
        made = []
        for each in messages:
            made.append({**each, "content": self._parts_of(each.get("content"), joint(str(each.get("role"))))})
        return made

    def _parts_of(self, content: Any, joint: str) -> Any:
        if isinstance(content, str):
            return self._split(content, joint) if self._mark in content else content
        if not isinstance(content, list):
            return content
        made: list[Any] = []
        for part in content:
            text = part.get("text") if isinstance(part, dict) else None
            made += self._split(text, "") if isinstance(text, str) and self._mark in text else [part]
        return made

    def _split(self, text: str, joint: str) -> list[dict[str, Any]]:
        """Texts and images. What joined a message's parts is taken out again next to an image."""
        pieces = self._find.split(text)
        made: list[dict[str, Any]] = []
        for place in range(0, len(pieces), 2):
            own = pieces[place]
            own = own.removeprefix(joint) if place else own
            own = own.removesuffix(joint) if place + 1 < len(pieces) else own
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


class WithPictures:
    """A chat template that is told of the images in the messages which it renders."""

    def __init__(self, template: SeeingTemplate, marks: PictureMarks) -> None:
        self._template, self._marks = template, marks

    @property
    def abilities(self) -> Abilities:
        """Those of the template."""
        return self._template.abilities

    def joint(self, role: str) -> str:
        """As the template's."""
        return self._template.joint(role)

    def render(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> str:
        """The text of a conversation. Raises InvalidRequest."""
        return self._template.render(messages, pictures=self._marks, **more)
