"""Notation "object": name and arguments stand in one JSON object.

    {"name": "hours", "arguments": {"day": "Mon"}}        {"hours": {"day": "Mon"}} where the name is the key

The keys may come in any order; other keys are skipped. The template of Qwen2.5-Coder shows a call in double braces,
{{"name": ...}}, and the model copies them. They are read as single braces, because no JSON begins with two. Small
models also write one closing brace too many; those that follow a call's object belong to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from twostroke.text.talk.calling import NO_ARGUMENTS, Calling
from twostroke.text.talk.hold.lark import Lark
from twostroke.text.talk.notations.json_text import dumped, read_string, read_value
from twostroke.text.talk.stream import Reading, TextStream

NAMES, ARGUMENTS = ("name", "tool_name", "function"), ("arguments", "parameters", "args")
_SCALAR = re.compile(r"[^,}\]\s{\[\"':]*")
MOST_SCALAR = 4096


class ObjectNotation(Struct, frozen=True):
    """A call that is one JSON object. name, arguments, call_id: the keys of the object; call_id is "" where calls have
    no id. keyed: True where the object has one key, the tool's name, whose value is the arguments. id_first: True where
    the id stands before the name.

    textual: True where the arguments are JSON in a string. counts: True where the id is only the number of the call in
    its turn, and the client gets another id. Any other id is sent to the client together with the name. Satisfies
    `Notation`.
    """

    name: str = "name"
    arguments: str = "arguments"
    call_id: str = ""
    id_first: bool = False
    counts: bool = False
    keyed: bool = False
    textual: bool = False

    lead = ""
    texts = ()

    def fits(self, stream: TextStream) -> Reading[bool]:
        return (yield from stream.starts("{"))

    def read(self, stream: TextStream, call: Calling) -> Reading[None]:
        if not (yield from stream.match("{")):
            return
        yield from stream.match("{")
        yield from _Object(self, stream, call).read()
        while call.begun and (yield from stream.match("}")):
            pass

    def write(self, name: str, arguments: Mapping[str, Any], call_id: str) -> str:
        if self.keyed:
            return dumped({name: arguments})
        given = dumped(arguments)
        pairs = [(self.name, name), (self.arguments, given if self.textual else arguments)]
        if self.call_id:
            own = call_id if call_id.isdecimal() or not self.counts else "0"
            pairs.insert(0 if self.id_first else 2, (self.call_id, own))
        return dumped(dict(pairs))

    def rule(self, name: str, schema: Mapping[str, Any], lark: Lark) -> str:
        if self.keyed:
            return " ".join([lark.text("{" + dumped(name) + ": "), lark.json(schema), lark.text("}")])
        call_id = f'{dumped(self.call_id)}: "' if self.call_id else ""
        before = lark.text("{" + (call_id if self.id_first else ""))
        between = lark.text(f'{dumped(self.name)}: {dumped(name)}, {dumped(self.arguments)}: ')
        ids = "/[A-Za-z0-9]{1,24}/"
        if not call_id:
            return " ".join([before, between, lark.json(schema), lark.text("}")])
        if self.id_first:
            return " ".join([before, ids, lark.text('", '), between, lark.json(schema), lark.text("}")])
        return " ".join([before, between, lark.json(schema), lark.text(", " + call_id), ids, lark.text('"}')])


class NameFirst(ObjectNotation, frozen=True):
    """An ObjectNotation whose first key must be the key of the name. An object with another first key is no call, so
    that an answer in JSON is streamed and does not wait."""

    def fits(self, stream: TextStream) -> Reading[bool]:
        begins = ('{"' + self.name + '"', '{{"' + self.name + '"')
        while True:
            raw = stream.text[stream.at : stream.at + MOST_SCALAR]
            begun = "".join(raw.split())
            if begun.startswith("{{") and not raw.startswith("{{"):
                return False
            if begun.startswith(begins) or stream.ended or not any(text.startswith(begun) for text in begins):
                return begun.startswith(begins)
            yield


class _Object:
    """Reads the JSON object of one call. Arguments that come before the name are sent only after the name, if it is the
    name of a tool."""

    def __init__(self, notation: ObjectNotation, stream: TextStream, call: Calling) -> None:
        self._notation, self._stream, self._call = notation, stream, call
        self._early: list[str] = []  # arguments that came before the name of the call
        self._argued = False
        self._cut = True
        self._id = self._named = ""

    def read(self) -> Reading[None]:
        yield from self._pairs()
        if self._named and not self._call.begun:
            self._begin()
            if not self._cut:
                self._call.no_arguments()

    def _pairs(self) -> Reading[None]:
        stream, call = self._stream, self._call
        while True:
            yield from stream.space(",")
            if (yield from stream.match("}")):
                self._cut = False
                if call.begun:
                    call.no_arguments()
                return
            key = yield from self._string()
            yield from stream.space()
            if key is None or not (yield from stream.match(":")):
                return
            yield from stream.space()
            if not (yield from self._value(key)):
                return

    def _value(self, key: str) -> Reading[bool]:
        """Reads the value of one key; sends it to the Calling where it is the name, the id or the arguments. Returns
        False where the object cannot be read on: the text has ended or is not JSON, or no tool has the name."""
        stream, call = self._stream, self._call
        first = yield from stream.peek()
        if self._notation.keyed and not call.begun:
            if not call.name(key):
                return False
            key = self._notation.arguments
        is_arguments = key == self._notation.arguments or (key in ARGUMENTS and key != self._notation.name)
        if is_arguments and not self._argued and first and first in "{[":
            self._argued = True
            return (yield from self._arguments())
        if first in ("{", "["):
            return (yield from read_value(stream, _nowhere))
        if first not in ('"', "'"):
            return (yield from self._scalar())
        text = yield from self._string()
        if text is None:
            return False
        if is_arguments and not self._argued:
            self._argued = True
            self._say(text if text.strip() else NO_ARGUMENTS)
        elif key == self._notation.call_id:
            self._id = "" if self._notation.counts else text
            return not self._named or self._call.begun or self._begin()
        elif (key == self._notation.name or key in NAMES) and not self._named:
            return self._name(text)
        return True

    def _name(self, name: str) -> bool:
        self._named = name
        waits = self._notation.call_id and not self._notation.counts and not self._id
        return self._call.knows(name) if waits else self._begin()

    def _begin(self) -> bool:
        """Sends the call's name and id to the Calling, then the arguments that came before the name. Returns False
        where no tool has the name."""
        if not self._named or not self._call.name(self._named, self._id):
            return False
        self._call.argue("".join(self._early))
        return True

    def _arguments(self) -> Reading[bool]:
        return (yield from read_value(self._stream, self._say))

    def _say(self, text: str) -> None:
        if self._call.begun:
            self._call.argue(text)
        else:
            self._early.append(text)

    def _string(self) -> Reading[str | None]:
        first = yield from self._stream.peek()
        if first not in ('"', "'"):
            return None
        return (yield from read_string(self._stream))

    def _scalar(self) -> Reading[bool]:
        yield from self._stream.word(_SCALAR, MOST_SCALAR)
        after = yield from self._stream.peek()
        return after in (",", "}") or after.isspace()


def _nowhere(_text: str) -> None:
    return
