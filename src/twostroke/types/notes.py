"""Notes on what was changed in one request so that it could be answered, in words for the client that sent it.

    notes = Notes()
    notes.add("max_tokens 32000 was cut to the 1990 tokens of room")
    notes.texts == ("max_tokens 32000 was cut to the 1990 tokens of room",)
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_NOTES = 16
MAX_NOTE_CHARACTERS = 200
MAX_NAME_CHARACTERS = 48
_UNSAFE = re.compile(r"[^ -:<-~]")  # not printable ASCII, or the semicolon, which separates the notes
_UNSAFE_NAME = re.compile(r"[^A-Za-z0-9_.:/-]")


class Notes:
    """Collects notes that tell a client what was changed in its request. Each text is kept once, in a form that is safe
    in an HTTP header. Only one thread may use an instance."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self._left_out = 0

    def add(self, text: str) -> None:
        """Adds a note about one change that was made to the request. Names that a client chose must go through `named`
        first."""
        text = _UNSAFE.sub("?", text[:MAX_NOTE_CHARACTERS])
        if text in self._texts:
            return
        if len(self._texts) < MAX_NOTES:
            self._texts[text] = None
        else:
            self._left_out += 1

    def add_all(self, texts: Iterable[str]) -> None:
        """Calls `add` for each text."""
        for text in texts:
            self.add(text)

    @property
    def texts(self) -> tuple[str, ...]:
        """All notes, in the order in which they were added."""
        more = (f"and {self._left_out} more",) if self._left_out else ()
        return (*self._texts, *more)


def named(value: object) -> str:
    """Returns a name that a client chose, cut to MAX_NAME_CHARACTERS and with "?" for every unsafe character, so that a
    note or an error may quote it."""
    return _UNSAFE_NAME.sub("?", str(value)[:MAX_NAME_CHARACTERS]) or "?"
