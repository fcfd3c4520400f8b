"""Splits what a model thinks from what it says.

Knows: the marks that models put around reasoning.
Must not know: tools, requests.
"""

from __future__ import annotations

from msgspec import Struct

from twostroke.text.tools.marks import split_at, starts_with
from twostroke.text.tools.pieces import Piece, Said, Thought


class ReasoningStyle(Struct, frozen=True):
    """The marks around reasoning."""

    opening: str
    closing: str


STYLES = (ReasoningStyle("<think>", "</think>"), ReasoningStyle("[THINK]", "[/THINK]"))


def reasoning_style(template_source: str) -> ReasoningStyle | None:
    """The style that a chat template writes, None where it knows of no reasoning."""
    return next((style for style in STYLES if style.closing in template_source), None)


def begins_inside(style: ReasoningStyle, rendered: str) -> bool:
    """True where the prompt itself opened the reasoning, so that the answer starts within it."""
    return rendered.rstrip().endswith(style.opening)


class ReasoningReader:
    """Reasoning comes first or not at all: marks later in the text are text. White space around it is dropped."""

    def __init__(self, style: ReasoningStyle, inside: bool) -> None:
        self._style = style
        self._inside = inside
        self._begun = False  # a Thought with text has been given
        self._buffer = ""
        self._spaces = ""
        self._state = self._before if not inside else self._within

    @property
    def inside(self) -> bool:
        """True while what comes is reasoning."""
        return self._state == self._within

    def feed(self, text: str) -> list[Piece]:
        """Take more text; what is sure now."""
        self._buffer += text
        return self._state()

    def finish(self) -> list[Piece]:
        """The held rest."""
        text, self._buffer = self._buffer, ""
        if not text:
            return []
        return [Thought(text)] if self.inside else [Said(text)]

    def _before(self) -> list[Piece]:
        solid = self._buffer.lstrip()
        opens = starts_with(solid, self._style.opening)
        if opens is None:
            return []
        if opens:
            self._buffer = solid[len(self._style.opening) :]
            self._state = self._within
        else:
            self._state = self._behind
        return self._state()

    def _within(self) -> list[Piece]:
        text, mark, self._buffer = split_at(self._buffer, (self._style.closing,))
        text = self._spaces + text
        if not self._begun:
            text = text.lstrip()
        solid = text.rstrip()
        self._spaces = text[len(solid) :]
        self._begun = self._begun or bool(solid)
        made: list[Piece] = [Thought(solid)] if solid else []
        if mark is None:
            return made
        self._state = self._gap
        return made + self._gap()

    def _gap(self) -> list[Piece]:
        self._buffer = self._buffer.lstrip()
        if not self._buffer:
            return []
        self._state = self._behind
        return self._behind()

    def _behind(self) -> list[Piece]:
        text, self._buffer = self._buffer, ""
        return [Said(text)] if text else []
