"""Notation "pythonic": a call of Python, with keyword arguments only.

    shelf(title="Emma", copies=2, place={"row": 3})

The call is parsed, not matched by a pattern: lists and dicts nest. Texts and other values stream as they grow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from twostroke.text.talk.calling import Calling
from twostroke.text.talk.hold.lark import ANY_KEY, Lark
from twostroke.text.talk.notations.json_text import dumped, loaded, read_value
from twostroke.text.talk.notations.named import MOST_NAME, NAME
from twostroke.text.talk.stream import Reading, TextStream

_SCALAR = re.compile(r"[^,)\]}\s]*")
MOST_SCALAR = 4096
_WORDS = {"True": "true", "False": "false", "None": "null"}


class PythonicNotation(Struct, frozen=True):
    """json_words: True where the model writes true and null instead of True and None. Satisfies `Notation`."""

    json_words: bool = False

    lead = ""
    texts = ()

    def fits(self, stream: TextStream) -> Reading[bool]:
        first = yield from stream.peek()
        return bool(first) and (first.isalpha() or first == "_")

    def read(self, stream: TextStream, call: Calling) -> Reading[None]:
        name = yield from stream.word(NAME, MOST_NAME)
        if not name or not (yield from stream.match("(")) or not call.name(name):
            return
        keys: set[str] = set()
        while True:
            yield from stream.space(",")
            if (yield from stream.match(")")):
                call.argue("}" if keys else "{}")
                return
            key = yield from stream.word(NAME, MOST_NAME)
            yield from stream.space()
            if not key or not (yield from stream.match("=")):
                return
            yield from stream.space()
            shown = key not in keys
            if shown:
                call.argue(f"{', ' if keys else '{'}{dumped(key)}: ")
                keys.add(key)
            if not (yield from self._value(stream, call if shown else None)):
                return

    def _value(self, stream: TextStream, call: Calling | None) -> Reading[bool]:
        first = yield from stream.peek()
        if first and first in "\"'{[(":
            return (yield from read_value(stream, call.argue if call else _nowhere))
        word = yield from stream.word(_SCALAR, MOST_SCALAR)
        if not word or not (yield from stream.peek()):
            return False
        value = _WORDS.get(word, word)
        if call is not None:
            call.argue(value if loaded(value) is not None or value == "null" else dumped(word))
        return True

    def write(self, name: str, arguments: Mapping[str, Any], call_id: str) -> str:
        pairs = (f"{key}={self._written(value)}" for key, value in arguments.items())
        return f"{name}({', '.join(pairs)})"

    def _written(self, value: Any) -> str:
        return dumped(value) if self.json_words or isinstance(value, str) else repr(value)

    def rule(self, name: str, schema: Mapping[str, Any], lark: Lark) -> str:
        """See Notation. Values are JSON, which the reader accepts as well as Python's words."""
        return " ".join([lark.text(name + "("), lark.pairs(schema, self._pair, ", "), lark.text(")")])

    def _pair(self, key: str, schema: Mapping[str, Any], lark: Lark) -> str:
        return f"{lark.text(key) or ANY_KEY} {lark.text('=')} {lark.json(schema)}"


def _nowhere(_text: str) -> None:
    return
