"""JSON that is still being written: where a value ends, and the name and arguments of a call.

Character by character and without backtracking: the time is linear in the text, whatever the text.

Knows: JSON's brackets, quotes and escapes.
Must not know: what stands around the value.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from twostroke.text.tools.pieces import CallArguments, CallBegan, Piece

ARGUMENT_KEYS = ("arguments", "parameters")
NO_ARGUMENTS = "{}"
_SPACE = " \t\r\n"


class ValueScanner:
    """Finds the end of a value that begins with a bracket or a quote. done: its last character was taken."""

    def __init__(self) -> None:
        self.begun = False
        self.done = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def take(self, text: str) -> int:
        """How many characters of `text` belong to the value."""
        self.begun = self.begun or bool(text)
        for place, character in enumerate(text):
            self._step(character)
            if self.done:
                return place + 1
        return len(text)

    def _step(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif self._in_string:
            self._escaped = character == "\\"
            self._in_string = character != '"'
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
        self.done = self._depth <= 0 and not self._in_string


class CallObject:
    """Reads `{"name": ..., "arguments": {...}}` as it grows; the keys may come in any order, others are passed over.

    done: it has ended, or what follows is no part of it. begun: its name is out. raw: its text while it is not begun,
    for callers that must show it as text after all.
    """

    def __init__(self, index: int, accepts: Callable[[str], bool]) -> None:
        self.done = False
        self.begun = False
        self.raw = ""
        self._index = index
        self._accepts = accepts
        self._state = self._open
        self._value: ValueScanner | None = None
        self._text = ""  # what was read of the current key or value
        self._key: str | None = None
        self._early = ""  # arguments that came before the name
        self._has_arguments = False
        self._out: list[Piece] = []

    def feed(self, text: str) -> tuple[list[Piece], str]:
        """(pieces, what is behind the object)."""
        while text and not self.done:
            taken = self._state(text)
            if not self.begun:
                self.raw += text[:taken]
            text = text[taken:]
        out, self._out = self._out, []
        return out, text

    def _open(self, text: str) -> int:
        if text[0] in _SPACE:
            return 1
        if text[0] != "{":
            return self._stop()
        self._state = self._before_key
        return 1

    def _before_key(self, text: str) -> int:
        if text[0] in _SPACE or text[0] == ",":
            return 1
        if text[0] == '"':
            self._value, self._text, self._state = ValueScanner(), "", self._in_key
            return 0
        if text[0] != "}":
            return self._stop()
        if self.begun and not self._has_arguments:
            self._out.append(CallArguments(self._index, NO_ARGUMENTS))
        self.done = True
        return 1

    def _in_key(self, text: str) -> int:
        taken = self._scan(text)
        if self._value is None:
            self._key = _string(self._text)
            self._state = self._colon
        return taken

    def _colon(self, text: str) -> int:
        if text[0] in _SPACE:
            return 1
        if text[0] != ":":
            return self._stop()
        self._state = self._before_value
        return 1

    def _before_value(self, text: str) -> int:
        if text[0] in _SPACE:
            return 1
        self._text = ""
        if text[0] not in '{["':
            self._state = self._in_scalar
            return 0
        self._value = ValueScanner()
        streams = self._key in ARGUMENT_KEYS and text[0] != '"' and not self._has_arguments
        self._state = self._in_arguments if streams else self._in_value
        return 0

    def _in_arguments(self, text: str) -> int:
        self._has_arguments = True
        taken = self._scan(text)
        if self.begun:
            self._out.append(CallArguments(self._index, text[:taken]))
        else:
            self._early += text[:taken]
        if self._value is None:
            self._state = self._before_key
        return taken

    def _in_value(self, text: str) -> int:
        taken = self._scan(text)
        if self._value is None:
            self._take_text(_string(self._text))
            self._state = self._before_key
        return taken

    def _in_scalar(self, text: str) -> int:
        if text[0] in ",}" or text[0] in _SPACE:
            self._state = self._before_key
            return 0
        return 1 if text[0] not in "{[\"':" else self._stop()

    def _take_text(self, text: str | None) -> None:
        """A value that is complete: the name, or arguments that were written as a string of JSON."""
        if text is None:
            return
        if self._key in ARGUMENT_KEYS and not self._has_arguments:
            self._has_arguments = True
            if self.begun:
                self._out.append(CallArguments(self._index, text or NO_ARGUMENTS))
            else:
                self._early = text or NO_ARGUMENTS
        elif self._key == "name" and not self.begun:
            if not text or not self._accepts(text):
                self._stop()
                return
            self.begun = True
            self._out.append(CallBegan(self._index, text))
            if self._early:
                self._out.append(CallArguments(self._index, self._early))

    def _scan(self, text: str) -> int:
        """Take what belongs to the value at hand; `_value` is None once it has ended."""
        if self._value is None:
            return 0
        taken = self._value.take(text)
        self._text += text[:taken]
        if self._value.done:
            self._value = None
        return taken

    def _stop(self) -> int:
        self.done = True
        return 0


def _string(text: str) -> str | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, str) else None
