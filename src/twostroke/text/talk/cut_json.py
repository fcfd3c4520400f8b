"""Finds the complete part of a JSON object that breaks off.

    complete_part('{"city": "Ulm", "days": [1, 2') == {"city": "Ulm", "days": [1]}
"""

from __future__ import annotations

import json
from typing import Any

_CLOSING = {"{": "}", "[": "]"}


def complete_part(text: str) -> dict[str, Any] | None:
    """Returns the object with every value that is certainly complete; None where the text is not the beginning of an
    object.

    A number at the end may go on, so it is left out; so are strings without their end.
    """
    prefix = _Prefix()
    for place, character in enumerate(text):
        prefix.take(place, character)
    try:
        made = json.loads(text[: prefix.safe] + prefix.closing)
    except (ValueError, RecursionError):
        return None
    return made if isinstance(made, dict) else None


class _Prefix:
    """Goes through the beginning of a JSON text, character by character, to find its complete part. safe: the end of
    that part. closing: the brackets that make JSON of text[:safe]."""

    def __init__(self) -> None:
        self.safe = 0
        self.closing = ""
        self._open: list[str] = []
        self._in_string = False
        self._escaped = False
        self._is_key = False
        self._scalar = False

    def take(self, place: int, character: str) -> None:
        if self._in_string:
            self._in_string = self._escaped or character != '"'
            self._escaped = character == "\\" and not self._escaped
            if not self._in_string and not self._is_key:
                self._mark(place + 1)
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._open.append(_CLOSING[character])
            self._is_key = character == "{"
            self._mark(place + 1)
        elif character in "}],":
            self._end(place, character)
        elif character == ":":
            self._is_key = False
        else:
            self._scalar = self._scalar or not character.isspace()

    def _end(self, place: int, character: str) -> None:
        if self._scalar:
            self._mark(place)
            self._scalar = False
        if character == ",":
            self._is_key = self._open[-1:] == ["}"]
            return
        if self._open:
            self._open.pop()
        self._is_key = False
        self._mark(place + 1)

    def _mark(self, place: int) -> None:
        self.safe = place
        self.closing = "".join(reversed(self._open))
