"""Passes on text as it streams, without the white space next to a format's marks, such as `</think>`."""

from __future__ import annotations

from collections.abc import Callable


class Trimmed:
    """Receives text in pieces and passes it to `emit`. White space at the end is held back until more text follows;
    `drop` removes it. begun: True after a text that is not white space."""

    __slots__ = ("_emit", "_spaces", "_trim", "begun")

    def __init__(self, emit: Callable[[str], object], trim: bool = False) -> None:
        self._emit = emit
        self._spaces: list[str] = []
        self._trim = trim
        self.begun = False

    def say(self, text: str) -> None:
        """Passes text on to `emit`. White space at its end is held back; after `trim` or `drop`, white space at its
        beginning is left out."""
        if self._trim:
            text = text.lstrip()
        if not text:
            return
        self._trim = False
        solid = text.rstrip()
        if not solid:
            self._spaces.append(text)
            return
        self.begun = True
        if self._spaces:
            self._emit("".join(self._spaces))
            self._spaces.clear()
        self._emit(solid)
        if len(solid) < len(text):
            self._spaces.append(text[len(solid) :])

    def passes(self, text: str) -> bool:
        """Returns True where `say` would pass on exactly this text. The text then counts as said, and the caller passes
        it on."""
        if self._trim or self._spaces or text[-1:].isspace():
            return False
        self.begun = self.begun or bool(text)
        return True

    def trim(self) -> None:
        """Called at a mark: white space after the mark is left out."""
        self._trim = True

    def drop(self) -> None:
        """Called at a mark: white space before and after the mark is left out."""
        self._spaces.clear()
        self._trim = True

    def finish(self) -> None:
        """Ends the text. White space at its end is passed on, unless `trim` or `drop` was called after it, because a
        mark such as `</think>` ended the text."""
        if self._spaces and not self._trim:
            self._emit("".join(self._spaces))
        self._spaces.clear()
