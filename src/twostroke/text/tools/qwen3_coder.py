"""Qwen3-Coder: XML without escapes, in which only a tool's schema says whether a value is a text or a number.

    <tool_call>
    <function=name>
    <parameter=key>
    value
    </parameter>
    </function>
    </tool_call>

A text streams as it comes; any other value comes out when it is whole. The opening mark is forgotten at times: then the
name must be one of the tools that the request offers.

Knows: the marks.
Must not know: other styles, how schemas name types.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from twostroke.text.tools.marks import split_at, starts_with
from twostroke.text.tools.pieces import CallArguments, CallBegan
from twostroke.text.tools.reader import StyleReader
from twostroke.text.tools.typed_text import TEXT, as_json, types_of

OPEN, CLOSE = "<tool_call>", "</tool_call>"
FUNCTION, END_FUNCTION = "<function=", "</function>"
PARAMETER, END_PARAMETER = "<parameter=", "</parameter>"
_ENDS = ("\n" + END_PARAMETER, END_PARAMETER)
_SPACES = " \t\r\n"
_NO_NAME = frozenset("<\n\r\t ")


class Qwen3CoderReader(StyleReader):
    """names: where they map to JSON schemas of the arguments, values are typed by them; without, all are texts."""

    def __init__(self, names: Collection[str]) -> None:
        self._schemas: Mapping[str, Any] = names if isinstance(names, Mapping) else {}
        self._schema: Any = None  # the schema of the current call
        self._lead = ""  # what stood before FUNCTION, in case it is text after all
        self._keys: set[str] = set()
        self._types: frozenset[str] = frozenset()
        self._shown = False  # the value goes out: its key came for the first time
        self._value = ""
        super().__init__(names)

    def _begin(self) -> bool:
        text, mark, self._buffer = split_at(self._buffer, (OPEN, FUNCTION))
        self._say(text)
        self._lead = ""
        if mark is not None:
            self._state = self._inside if mark == OPEN else self._head
        return mark is not None

    def _inside(self) -> bool:
        """Read what follows the opening mark: a function, or the mark was text."""
        rest = self._buffer.lstrip(_SPACES)
        begins = starts_with(rest, FUNCTION)
        if begins is None:
            return False
        self._lead = OPEN + self._buffer[: len(self._buffer) - len(rest)]
        self._buffer = rest[len(FUNCTION) :] if begins else rest
        self._state = self._head
        return True if begins else self._is_text(self._lead)

    def _head(self) -> bool:
        """The name, up to the bracket."""
        name, bracket, rest = self._buffer.partition(">")
        if not _NO_NAME.isdisjoint(name) or (bracket and not name):
            return self._is_text(self._lead + FUNCTION)
        if not bracket:
            return False
        if not self._lead and name not in self._names:
            return self._is_text(self._lead + FUNCTION)
        self._buffer = rest
        self._drop_spaces()
        self._out.append(CallBegan(self._num_calls, name))
        self._schema, self._keys = self._schemas.get(name), set()
        self._state = self._between
        return True

    def _is_text(self, text: str) -> bool:
        self._say(text)
        self._state = self._begin
        return True

    def _between(self) -> bool:
        """Parameters, and the end; what else stands there is dropped."""
        _, mark, self._buffer = split_at(self._buffer, (PARAMETER, END_FUNCTION, CLOSE))
        if mark is None:
            return False
        if mark == PARAMETER:
            self._state = self._key
            return True
        self._argue("}" if self._keys else "{}")
        self._num_calls += 1
        self._state = self._behind if mark == END_FUNCTION else self._begin
        return True

    def _key(self) -> bool:
        key, mark, rest = split_at(self._buffer, (">", "\n"))
        if mark is None:
            return False
        self._buffer = rest
        if mark == "\n":  # no key after all
            self._state = self._between
            return True
        self._shown = key not in self._keys
        self._types = types_of(self._schema, key)
        if self._shown:
            quote = '"' if self._types == TEXT else ""
            self._argue(f"{', ' if self._keys else '{'}{json.dumps(key, ensure_ascii=False)}: {quote}")
            self._keys.add(key)
        self._value = ""
        self._state = self._first
        return True

    def _first(self) -> bool:
        """One line end behind the key is the form's, not the value's."""
        if not self._buffer:
            return False
        self._buffer = self._buffer.removeprefix("\n")
        self._state = self._in_value
        return True

    def _in_value(self) -> bool:
        text, mark, self._buffer = split_at(self._buffer, _ENDS)
        if self._types == TEXT:
            self._show(json.dumps(text, ensure_ascii=False)[1:-1])
        else:
            self._value += text
        if mark is None:
            return False
        self._show('"' if self._types == TEXT else as_json(self._value, self._types))
        self._state = self._between
        return True

    def _show(self, text: str) -> None:
        if self._shown:
            self._argue(text)

    def _argue(self, text: str) -> None:
        self._out.append(CallArguments(self._num_calls, text))

    def _behind(self) -> bool:
        return self._skip_mark(CLOSE)

    def _end(self) -> None:
        if self._state == self._inside:
            self._buffer = OPEN + self._buffer
        elif self._state == self._head:
            self._buffer = self._lead + FUNCTION + self._buffer
        elif self._state != self._begin:
            self._buffer = ""
        super()._end()
