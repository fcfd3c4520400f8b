"""Mistral: `[TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]`, or `[TOOL_CALLS]name[ARGS]{...}` for each call.

Knows: the marks.
Must not know: other styles.
"""

from __future__ import annotations

from twostroke.text.tools.marks import split_at
from twostroke.text.tools.reader import StyleReader

OPEN, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
MAX_NAME = 256


class MistralReader(StyleReader):
    """Text, then calls; text behind them is read as text."""

    _name = ""

    def _begin(self) -> bool:
        text, mark, self._buffer = split_at(self._buffer, (OPEN,))
        self._say(text)
        if mark is not None:
            self._state = self._opened
        return mark is not None

    def _opened(self) -> bool:
        if not self._skip_spaces():
            return False
        if self._buffer[0] == "{":
            self._open_call(self._begin)
        elif self._buffer[0] == "[":
            self._buffer = self._buffer[1:]
            self._state = self._in_list
        else:
            self._state = self._in_name
        return True

    def _in_list(self) -> bool:
        if not self._skip_spaces(","):
            return False
        if self._buffer[0] == "{":
            self._open_call(self._in_list)
            return True
        if self._buffer[0] == "]":
            self._buffer = self._buffer[1:]
        self._state = self._begin
        return True

    def _in_name(self) -> bool:
        """The name ends at a mark or at the arguments themselves."""
        name, mark, _ = split_at(self._buffer, (ARGS, CALL_ID, "{"))
        if mark is None and len(name) <= MAX_NAME:
            return False
        if mark is None or not name.strip() or len(name) > MAX_NAME:
            self._say(OPEN)
            self._state = self._begin
            return True
        self._buffer = self._buffer[len(name) :]
        self._name = name.strip()
        self._state = self._before_arguments
        return True

    def _before_arguments(self) -> bool:
        """Read what stands between name and arguments: the id that the model gave the call, and the mark."""
        start = self._buffer.find("{")
        if start < 0:
            return False
        self._buffer = self._buffer[start:]
        self._name_call(self._name, self._begin)
        return True

    def _end(self) -> None:
        if self._state in (self._opened, self._in_name):
            self._buffer = OPEN + self._buffer
        elif self._state == self._before_arguments:
            self._buffer = OPEN + self._name + self._buffer
        elif self._state == self._in_list:
            self._buffer = ""
        super()._end()

    def _call_mark(self) -> str:
        return OPEN
