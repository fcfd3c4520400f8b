"""Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, once for each call.

Knows: the marks.
Must not know: other styles.
"""

from __future__ import annotations

from twostroke.text.tools.marks import split_at
from twostroke.text.tools.reader import StyleReader

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesReader(StyleReader):
    """Text, calls and text in any order."""

    def _begin(self) -> bool:
        text, mark, self._buffer = split_at(self._buffer, (OPEN,))
        self._say(text)
        if mark is not None:
            self._open_call(self._behind)
        return mark is not None

    def _behind(self) -> bool:
        return self._skip_mark(CLOSE)

    def _end(self) -> None:
        if self._state == self._behind:
            self._buffer = ""
        super()._end()

    def _call_mark(self) -> str:
        return OPEN
