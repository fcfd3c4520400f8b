"""Reads JSON that is still being written, and translates the Python words that models write in its place.

    {'a': True}   becomes   {"a": true}

Correct JSON is not changed at all. There is no backtracking: the time is linear in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from twostroke.text.talk.stream import Reading, TextStream

_WORDS = {"True": "true", "False": "false", "None": "null"}
_OUTSIDE = re.compile(r"[\"'{}\[\]()<`]|[A-Za-z_]+")
_LETTERS = re.compile(r"[A-Za-z_]*")
_INSIDE = {quote: re.compile(r"[\\\x00-\x1f\"" + quote + "]") for quote in ('"', "'")}
_ESCAPES = frozenset('"\\/bfnrtu')
_OPENING = {"(": "[", ")": "]"}
_LONGEST_WORD = 5
Say = Callable[[str], object]


class JsonText:
    """Makes JSON of a model's text as it comes. done: True where the value, which begins with a bracket or a quote, has
    ended. broken: True where the value ended at a character that JSON does not allow there and that may begin a mark.
    """

    def __init__(self) -> None:
        self.done = self.broken = False
        self._depth = 0
        self._quote = ""
        self._escaped = False
        self._in_word = False  # True: the text ended inside a word that is longer than Python's words

    def take(self, text: str, ended: bool) -> tuple[str, int]:
        """Reads more text. Returns (the JSON made of it, the number of characters read). Characters at the end are left
        unread where their meaning depends on characters that have not arrived; the caller gives them again with more
        text."""
        made: list[str] = []
        place = 0
        while place < len(text) and not self.done:
            step = self._inside if self._quote else self._outside
            after = step(text, place, made, ended)
            if after is None:
                break
            place = after
        return "".join(made), place

    def _inside(self, text: str, place: int, made: list[str], _ended: bool) -> int | None:
        if self._escaped:
            self._escaped = False
            made.append(_escape(text[place]))
            return place + 1
        found = _INSIDE[self._quote].search(text, place)
        if found is None:
            made.append(text[place:])
            return len(text)
        made.append(text[place : found.start()])
        character = found.group()
        if character == self._quote:
            self._quote = ""
            self.done = self._depth == 0
            made.append('"')
        elif character == "\\":
            self._escaped = True
        else:
            made.append(json.dumps(character)[1:-1])
        return found.end()

    def _outside(self, text: str, place: int, made: list[str], ended: bool) -> int | None:
        if self._in_word:
            found = _LETTERS.match(text, place)
            end = found.end() if found else place
            self._in_word = end == len(text)
            made.append(text[place:end])
            return end
        found = _OUTSIDE.search(text, place)
        if found is None:
            made.append(text[place:])
            return len(text)
        made.append(text[place : found.start()])
        token = found.group()
        if token in "<`":
            self.done = self.broken = True
            return found.start()
        if token in "\"'":
            self._quote = token
            made.append('"')
        elif token in "{[(":
            self._depth += 1
            made.append(_OPENING.get(token, token))
        elif token in "}])":
            self._depth -= 1
            self.done = self._depth <= 0
            made.append(_OPENING.get(token, token))
        elif found.end() == len(text) and not ended and len(token) <= _LONGEST_WORD:
            return None if found.start() == place else found.start()
        else:
            self._in_word = found.end() == len(text)
            made.append(_WORDS.get(token, token))
        return found.end()


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return "\\" + character
    if character == "'":
        return "'"
    return "\\\\" + json.dumps(character, ensure_ascii=False)[1:-1]


def read_value(stream: TextStream, say: Say) -> Reading[bool]:
    """Reads a JSON value that begins with a bracket or a quote, and sends it to `say` as it comes. Returns True where
    the value is complete, False where the text ended first or is not JSON."""
    value = JsonText()
    while True:
        made, length = value.take(stream.text[stream.at :], stream.ended)
        stream.take(length)
        say(made)
        if value.done or stream.ended:
            return value.done and not value.broken
        yield


def read_string(stream: TextStream) -> Reading[str | None]:
    """Reads a JSON string, from its first quote on, and returns its value. Returns None where the model's text ends
    within the string, or where the value is no string."""
    made: list[str] = []
    whole = yield from read_value(stream, made.append)
    found = loaded("".join(made)) if whole else None
    return found if isinstance(found, str) else None


def loaded(text: str) -> Any:
    """Returns the value of the JSON text; None where the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def dumped(value: Any) -> str:
    """Returns JSON as templates write it."""
    return json.dumps(value, ensure_ascii=False)


def inner(text: str) -> str:
    """Returns the text with JSON's escapes, as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
