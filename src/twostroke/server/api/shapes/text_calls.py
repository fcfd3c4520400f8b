"""Tool calls whose argument is a plain text, such as apply_patch: the model writes `{"input": "..."}`, and the client
gets the text alone.

    unwrap = TextCalls(frozenset({"apply_patch"}))
    pieces = unwrap.feed(pieces) ... unwrap.finish()

The text comes out as it grows. Arguments in another form are passed on as the model wrote them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from twostroke.text.history.calls import TEXT_ARGUMENT
from twostroke.text.talk.pieces import CallArguments, CallBegan, Piece

_OPENING = re.compile(r'\s*\{\s*"' + TEXT_ARGUMENT + r'"\s*:\s*"')
_LONGEST_OPENING = 64
_SAFE = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
"""Matches, at the end of a text, the first of the two escapes by which JSON writes one character outside of the basic
plane."""


class TextCalls:
    """Takes the text out of the JSON arguments of tools that take a plain text. names: the names of these tools."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._open: int | None = None  # the index of the current call
        self._raw = ""
        self._text = ""  # the part of the value that was returned
        self._at = 0  # the position of the value's next character; 0: the value has not begun

    def feed(self, pieces: Iterable[Piece]) -> list[Piece]:
        """Returns the pieces of an answer, in which the JSON arguments of the named tools are replaced by the text that
        they contain."""
        if not self._names:
            return list(pieces)
        made: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, CallArguments) and piece.index == self._open:
                self._raw += piece.text
                made += self._grown()
                continue
            made += self.finish()
            if isinstance(piece, CallBegan) and piece.name in self._names:
                self._open = piece.index
            made.append(piece)
        return made

    def finish(self) -> list[Piece]:
        """Returns the text that was held back, once the tool call has ended."""
        if self._open is None:
            return []
        index, raw, given = self._open, self._raw, self._text
        self._open, self._raw, self._text, self._at = None, "", "", 0
        whole = _text_of(raw) if not given else None
        return [CallArguments(index, whole)] if whole else []

    def _grown(self) -> list[Piece]:
        if not self._at:
            found = _OPENING.match(self._raw, 0, _LONGEST_OPENING)
            if found is None:
                return []
            self._at = found.end()
        found = _SAFE.match(self._raw, self._at)
        value = found.group() if found else ""
        value = _HALF.sub("", value)
        self._at += len(value)
        text = _decoded(value)
        self._text += text
        return [CallArguments(self._open or 0, text)] if text else []


def _decoded(value: str) -> str:
    return _whole_characters(json.loads(f'"{value}"', strict=False))


def _text_of(raw: str) -> str:
    """Returns the text that the complete arguments of a tool call contain, in whatever form the model wrote them."""
    try:
        found = json.loads(raw, strict=False)
    except (ValueError, RecursionError):
        return raw
    if isinstance(found, dict):
        found = found.get(TEXT_ARGUMENT, raw if found else "")
    return _whole_characters(found) if isinstance(found, str) else raw


def _whole_characters(text: str) -> str:
    """Returns the text with U+FFFD in place of half a surrogate pair, which cannot be written as UTF-8."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
