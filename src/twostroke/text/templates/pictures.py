"""Images in a conversation while its template renders: a mark stands for each image, and is then replaced by the text
that the model's prompt has for an image.

A mark is digits that nobody can guess, as in quoting.py. Templates that write images themselves get a part of the type
image in its place. For other templates, the mark is replaced afterwards.
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
    """The images of a rendered prompt: finds where they stand in its token ids."""

    def spans(self, token_ids: Sequence[int]) -> tuple[ImageSpan, ...]:
        """Returns the positions of the images' rows. Raises InvalidRequest where the token ids do not have the expected
        places for images."""


class SeeingTemplate(Protocol):
    """A chat template that accepts the marks of images."""

    @property
    def abilities(self) -> Abilities:
        """Which parts of a conversation with tools the template writes into the prompt: the offer of tools, calls,
        results."""

    def joint(self, role: str) -> str:
        """Returns the text that the template writes between two parts of a message of this role."""

    @property
    def render(self) -> Callable[..., str]:
        """The function that renders a conversation, with its images, as the text of a prompt. It raises InvalidRequest.
        """


class PictureMarks:
    """The marks (random digits) that stand for a prompt's images while its chat template renders. Only one thread may
    use them. written: the text that the model's templates write for an image."""

    def __init__(self, written: str) -> None:
        self.written = written
        self._mark = str(secrets.randbelow(9 * 10 ** (DIGITS - 1)) + 10 ** (DIGITS - 1))
        self._find = re.compile(f"{self._mark}([0-9]{{{NUMBER}}})")
        self._order: list[int] = []

    def mark(self, number: int) -> str:
        """Returns the mark that stands for image `number` in a message's text."""
        return f"{self._mark}{number:0{NUMBER}}"

    def as_parts(self, messages: list[dict[str, Any]], joint: Callable[[str], str]) -> list[dict[str, Any]]:
        """Returns the messages with a part of the type image in place of each image's mark. This call also records the
        order of the images.

        joint(role): returns the text that was put between the parts of a message of this role, when they were joined.
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
        """Splits a text at the marks of images into text parts and image parts. joint: the text that was put between
        parts when they were joined; it is removed next to an image."""
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

    def replaced(self, text: str, texts: Sequence[str], ahead: Callable[[int], str]) -> tuple[str, list[int]]:
        """Returns the rendered text with texts[i] in the place of image i, and the numbers of the images in the order
        of their places. ahead: returns the text before an image, from the number of images before it.

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
        for place, (number, piece) in enumerate(zip(order, pieces[1:], strict=True)):
            made += [ahead(place), texts[number], piece]
        return "".join(made), order


class WithPictures:
    """A chat template together with the marks of the images in the messages that it renders. Satisfies
    `SeeingTemplate`."""

    def __init__(self, template: SeeingTemplate, marks: PictureMarks) -> None:
        self._template, self._marks = template, marks

    @property
    def abilities(self) -> Abilities:
        return self._template.abilities

    def joint(self, role: str) -> str:
        return self._template.joint(role)

    def render(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> str:
        return self._template.render(messages, pictures=self._marks, **more)
