"""Notation "braces": keys have no quotes, and texts stand between two equal marks.

    call:shelf{title:<|"|>Emma<|"|>,copies:2,place:{rows:[1,2]}}

A text ends at the first mark that is followed by a comma, by a bracket or by a key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from twostroke.text.grammar.pointers import Pointers
from twostroke.text.talk.calling import Calling
from twostroke.text.talk.hold.lark import ANY_KEY, Lark
from twostroke.text.talk.notations.json_text import dumped, inner, loaded, read_string
from twostroke.text.talk.notations.named import MOST_NAME, NAME
from twostroke.text.talk.stream import Reading, TextStream, marks_of
from twostroke.text.talk.typed_text import TEXT, types_of

_KEY = re.compile(r"[^:{}\[\],<\"]*")
_SCALAR = re.compile(r"[^,}\]<]*")
_BARE_POINT = re.compile(r"-?[0-9]+\.")
_CLOSING = {"{": "}", "[": "]"}
_WORDS = {"True": "true", "False": "false", "None": "null"}
MOST_SCALAR, MOST_DEPTH = 4096, 64


class BracesNotation(Struct, frozen=True):
    """Calls such as `call:shelf{title:<|"|>Emma<|"|>}`. before: the text in front of the tool's name (`call:`). quote:
    the mark before and after a text (`<|"|>`). Keys are sorted, as templates write them. Satisfies `Notation`."""

    before: str
    quote: str

    lead = ""

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.before, self.quote)

    def fits(self, stream: TextStream) -> Reading[bool]:
        return (yield from stream.starts(self.before))

    def read(self, stream: TextStream, call: Calling) -> Reading[None]:
        yield from stream.match(self.before)
        name = yield from stream.word(NAME, MOST_NAME)
        if name and (yield from stream.starts("{")) and call.name(name):
            yield from _Value(self, stream, call).read()

    def write(self, name: str, arguments: Mapping[str, Any], call_id: str) -> str:
        return f"{self.before}{name}{self._written(arguments)}"

    def _written(self, value: Any) -> str:
        if isinstance(value, str):
            return f"{self.quote}{value}{self.quote}"
        if isinstance(value, Mapping):
            return "{" + ",".join(f"{key}:{self._written(value[key])}" for key in sorted(value)) + "}"
        if isinstance(value, list | tuple):
            return "[" + ",".join(map(self._written, value)) + "]"
        return dumped(value)

    def rule(self, name: str, schema: Mapping[str, Any], lark: Lark) -> str:
        return " ".join((lark.text(f"{self.before}{name}"), self._object(schema, schema, lark, 0)))

    def _object(self, schema: Mapping[str, Any], root: Mapping[str, Any], lark: Lark, depth: int) -> str:
        def pair(key: str, own: Mapping[str, Any], lark: Lark) -> str:
            return f"{lark.text(key) or ANY_KEY} {lark.text(':')} {self._value(own, root, lark, depth + 1)}"

        properties = schema.get("properties")
        ordered = {key: properties[key] for key in sorted(properties)} if isinstance(properties, dict) else properties
        given = {**schema, "properties": ordered} if ordered is not None else schema
        return f'{lark.text("{")} {lark.pairs(given, pair, ",")} {lark.text("}")}'

    def _value(self, schema: Mapping[str, Any], root: Mapping[str, Any], lark: Lark, depth: int) -> str:
        schema = Pointers(root).resolved(schema)
        types = types_of({"properties": {"": schema}}, "") if schema else frozenset(("string", "number", "boolean"))
        made = []
        for kind in sorted(types):
            if kind == "string":
                choices = [each for each in schema.get("enum", ()) if isinstance(each, str)]
                text = lark.text(self.quote)
                made += [f"{text} {lark.text(each)} {text}" for each in choices]
                made += [] if choices else [f"{text} {lark.text_before(schema, self.quote)}"]
            elif kind == "object" and depth < MOST_DEPTH:
                made.append(self._object(schema, root, lark, depth))
            elif kind == "array" and depth < MOST_DEPTH:
                items = schema.get("items")
                one = lark.rule(self._value(items if isinstance(items, dict) else {}, root, lark, depth + 1))
                made.append(f'{lark.text("[")} {lark.times(one, ",", schema)} {lark.text("]")}')
            else:
                made.append(lark.json({**_only(schema, kind), "type": kind}))
        return lark.rule(" | ".join(made)) if types != TEXT or len(made) > 1 else made[0]


def _only(schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
    names = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "enum", "const")
    return {name: schema[name] for name in names if name in schema} if kind in ("integer", "number") else {}


class _Value:
    """Reads the arguments of one call, written in braces, and reports them as JSON while they come."""

    def __init__(self, notation: BracesNotation, stream: TextStream, call: Calling) -> None:
        self._quote, self._stream, self._say = notation.quote, stream, call.argue
        self._closing = marks_of((notation.quote,))
        properties = call.schema.get("properties") if isinstance(call.schema, dict) else None
        keys = tuple(f"{key}:" for key in properties) if isinstance(properties, dict) else ()
        self._text_end = {notation.quote: (",", "}", "]", *keys)}

    def read(self) -> Reading[None]:
        """Reads the object of all arguments, and sends it as JSON to the call, piece by piece. Stops where the model's
        text ends or is not in this notation; the JSON that was sent so far stays incomplete."""
        stream, say = self._stream, self._say
        stream.take(1)
        say("{")
        open_: list[str] = ["}"]
        first = True
        while open_:
            yield from stream.space()
            character = yield from stream.peek()
            if character == open_[-1]:
                say(stream.take(1))
                open_.pop()
                first = False
                continue
            if character == ",":
                stream.take(1)
                yield from stream.space()
                if (yield from stream.peek()) == open_[-1]:
                    continue
            elif not first and (open_[-1] != "}" or not character.isalpha()):
                return  # models sometimes forget a comma between two keys
            if not first:
                say(", ")
            if open_[-1] == "}" and not (yield from self._key()):
                return
            yield from stream.space()
            character = yield from stream.peek()
            first = character in _CLOSING and character != ""
            if first:
                say(stream.take(1))
                open_.append(_CLOSING[character])
            elif not (yield from self._plain(character)):
                return

    def _key(self) -> Reading[bool]:
        stream = self._stream
        if (yield from stream.match(self._quote)):
            parts: list[str] = []
            yield from stream.until(self._closing, parts.append)
            key: str | None = "".join(parts)
        elif (yield from stream.peek()) == '"':
            key = yield from read_string(stream)
        else:
            key = (yield from stream.word(_KEY, MOST_NAME)).strip()
        yield from stream.space()
        if not key or not (yield from stream.match(":")):
            return False
        self._say(f"{dumped(key)}: ")
        return True

    def _plain(self, character: str) -> Reading[bool]:
        stream, say = self._stream, self._say
        if (yield from stream.match(self._quote)):
            say('"')
            closed = yield from stream.until_followed(self._text_end, lambda text: say(inner(text)))
            say('"' if closed else "")
            return bool(closed)
        if character in ('"', "'"):
            text = yield from read_string(stream)
            say("" if text is None else dumped(text))
            return text is not None
        word = (yield from stream.word(_SCALAR, MOST_SCALAR)).strip()
        if not (yield from stream.peek()):
            return False
        value = _WORDS.get(word, word)
        value = value + "0" if _BARE_POINT.fullmatch(value) else value
        say(value if value == "null" or loaded(value) is not None else dumped(word))
        return True
