"""Llama 3: the answer is `{"name": ..., "parameters": {...}}`, after `<|python_tag|>` or bare; `;` between calls.

There is no mark that says what an object is, so one whose name is not among the request's tools is text.

Knows: the tag.
Must not know: other styles.
"""

from __future__ import annotations

from twostroke.text.tools.marks import starts_with
from twostroke.text.tools.reader import StyleReader

TAG = "<|python_tag|>"


class Llama3Reader(StyleReader):
    """Calls first; from the first thing that is no call on, all is text."""

    def _begin(self) -> bool:
        solid = self._buffer.lstrip()
        if not solid:
            return False
        tagged = starts_with(solid, TAG)
        if tagged is None:
            return False
        if tagged:
            self._buffer = solid[len(TAG) :]
            return True
        if solid[0] != "{":
            self._state = self._only_text
            return True
        self._open_call(self._behind)
        return True

    def _behind(self) -> bool:
        if not self._skip_spaces(";"):
            return False
        self._state = self._begin
        return True

    def _only_text(self) -> bool:
        text, self._buffer = self._buffer, ""
        self._say(text)
        return False

    def _no_call(self) -> bool:
        self._state = self._only_text
        return True

    def _accepts(self, name: str) -> bool:
        return name in self._names
