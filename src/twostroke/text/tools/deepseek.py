"""DeepSeek: calls within marks of their own; V3 and R1 fence the arguments, V3.1 writes them bare.

    V3    <begin-calls><begin-call>function<sep>name\\n```json\\n{...}\\n```<end-call>...<end-calls>
    V3.1  <begin-calls><begin-call>name<sep>{...}<end-call>...<end-calls>

Knows: the marks.
Must not know: other styles.
"""

from __future__ import annotations

from twostroke.text.tools.marks import split_at
from twostroke.text.tools.reader import StyleReader

BEGIN_CALLS, END_CALLS = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
BEGIN_CALL, END_CALL, SEPARATOR = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
FENCED_KIND = "function"


class DeepSeekReader(StyleReader):
    """Text, then calls; text behind them is read as text."""

    _name = ""

    def _begin(self) -> bool:
        text, mark, self._buffer = split_at(self._buffer, (BEGIN_CALLS,))
        self._say(text)
        if mark is not None:
            self._drop_spaces()
            self._state = self._between
        return mark is not None

    def _between(self) -> bool:
        _, mark, self._buffer = split_at(self._buffer, (BEGIN_CALL, END_CALLS))
        if mark is None:
            return False
        self._state = self._head if mark == BEGIN_CALL else self._begin
        return True

    def _head(self) -> bool:
        head, mark, rest = split_at(self._buffer, (SEPARATOR, END_CALL))
        if mark is None:
            return False
        self._buffer = rest
        if mark == END_CALL:
            self._state = self._between
        elif head.strip() == FENCED_KIND:
            self._state = self._fenced_name
        else:
            self._name = head.strip()
            self._state = self._before_arguments
        return True

    def _fenced_name(self) -> bool:
        name, mark, rest = split_at(self._buffer, ("\n", END_CALL))
        if mark is None:
            return False
        self._name = name.strip()
        self._buffer = mark + rest
        self._state = self._before_arguments
        return True

    def _before_arguments(self) -> bool:
        """Spaces and the fence stand before the object; a call without one has no arguments."""
        _, mark, rest = split_at(self._buffer, ("{", END_CALL))
        if mark is None:
            return False
        self._buffer = mark + rest
        self._name_call(self._name, self._tail)
        return True

    def _tail(self) -> bool:
        """Up to the call's end: the fence, or nothing."""
        _, mark, self._buffer = split_at(self._buffer, (END_CALL, END_CALLS))
        if mark is None:
            return False
        self._state = self._between if mark == END_CALL else self._begin
        return True

    def _end(self) -> None:
        if self._state != self._begin:
            self._buffer = ""
        super()._end()
