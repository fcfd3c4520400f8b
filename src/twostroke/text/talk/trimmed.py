"""Text whose white space counts between words, and not next to marks."""

from __future__ import annotations

from collections.abc import Callable


class Trimmed:
    """White space at the end is held until something follows; `drop` takes it away. begun: something else was said."""

    __slots__ = ("_emit", "_spaces", "_trim", "begun")

    def __init__(self, emit: Callable[[str], object], trim: bool = False) -> None:
        self._emit = emit
        self._spaces: list[str] = []
        self._trim = trim
        self.begun = False

    def say(self, text: str) -> None:
        """More text."""
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
        """True where `say` would emit exactly this text: it counts as said."""
        if self._trim or self._spaces or text[-1:].isspace():
            return False
        self.begun = self.begun or bool(text)
        return True

    def trim(self) -> None:
        """A mark stands here: white space after it is the form's."""
        self._trim = True

    def drop(self) -> None:
        """A mark stands here: white space on both sides is the form's."""
        self._spaces.clear()
        self._trim = True

    def finish(self) -> None:
        """No more text comes: white space at the end is text, too."""
        if self._spaces and not self._trim:
            self._emit("".join(self._spaces))
        self._spaces.clear()
