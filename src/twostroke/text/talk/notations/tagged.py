"""Notation "tagged": keys and values are text between tags, and a tool's schema defines the type of a value.

    <function=shelf> <parameter=title> Emma </parameter> </function>            flat
    <invoke name="shelf"><parameter name="title">Emma</parameter></invoke>      with attributes

A text streams as it comes; any other value is sent when it is whole. There are no escapes. So a closing tag ends a
value only if a new key or the end of the call comes next. A closing tag with other text after it is part of the value,
because a file that an agent writes may contain tags.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from twostroke.text.talk.calling import Calling
from twostroke.text.talk.hold.lark import ANY_KEY, Lark, quoted
from twostroke.text.talk.notations.json_text import dumped, inner, read_value
from twostroke.text.talk.notations.named import MOST_NAME, NAME
from twostroke.text.talk.stream import Followed, Reading, TextStream, marks_of
from twostroke.text.talk.typed_text import TEXT, as_json, types_of

_ATTRIBUTES = re.compile(r"[^<>|\n]*")
_TYPE = re.compile(r'(?:string|type)="([^"]*)"')
_WRAPPED = re.compile(r"[<&\n]")
_TEXTUAL = ("true", "string")


class TaggedNotation(Struct, frozen=True):
    """The tags of a call around the tool's name N, and around the key K and the value V of each argument:

        name_open N name_close (key_open K key_close value_open pad V pad value_close between)* closing

    lead: the text that begins name_open, for models that sometimes forget a mark in front of it. pad: a line end before
    and after each value, which is not part of the value. loose: a line end that is removed from both ends of a value,
    if the value begins with it. twice: True where a model may write the name also before name_open. typed: the
    attribute of a key's tag that gives the value's type, "" for none; {type} in key_close stands for the type. wraps:
    the marks around a value that has a line end or a mark in it. Satisfies `Notation`.

    A name is read up to white space or one of <>{}[]()"'|,;= and a key is read up to one of <>" or a line end. So the
    mark after it begins there. No mark ends with a space: a reader would read the space as a part of what follows.
    """

    name_open: str
    name_close: str
    key_open: str
    key_close: str
    value_close: str
    closing: str = ""
    value_open: str = ""
    pad: str = ""
    loose: str = ""
    twice: bool = False
    between: str = ""
    lead: str = ""
    typed: str = ""
    wraps: tuple[str, str] = ("", "")

    @property
    def texts(self) -> tuple[str, ...]:
        found = (self.name_open, self.key_open, self.value_close, self.closing, self.value_open, self.key_close)
        return tuple(text.partition("{")[0] for text in found)

    def fits(self, stream: TextStream) -> Reading[bool]:
        if self.name_open.strip():
            return (yield from stream.starts(self.name_open.strip().rstrip('"')))
        first = yield from stream.peek()
        return bool(first) and bool(NAME.fullmatch(first))

    def read(self, stream: TextStream, call: Calling) -> Reading[None]:
        opening = self.name_open.strip().rstrip('"')
        if self.twice and not (yield from stream.starts(opening)):
            yield from stream.word(NAME, MOST_NAME)
            yield from stream.space()
        if not (yield from stream.match(opening)):
            return
        yield from stream.match('"')
        name = yield from stream.word(NAME, MOST_NAME)
        if not name or not (yield from self._named(stream)):
            return
        if call.name(name):
            yield from _Arguments(self, stream, call).read()

    def _named(self, stream: TextStream) -> Reading[bool]:
        """Reads what follows the tool's name in its tag, such as further attributes and the tag's end. Returns False
        where the tag does not end there, so that the text is no call."""
        if not self.name_close.strip():
            return bool((yield from stream.peek()))
        yield from stream.match('"')
        while (yield from stream.peek()) == " ":
            yield from stream.space()
            yield from stream.word(_ATTRIBUTES, MOST_NAME)  # an index
        return (yield from stream.match(self.name_close.rpartition('"')[2].strip()))

    def write(self, name: str, arguments: Mapping[str, Any], call_id: str) -> str:
        parts = [self.name_open, name, self.name_close.replace("{index}", "1")]
        for key, value in arguments.items():
            written = self._wrapped(value) if isinstance(value, str) else dumped(value)
            close = self.key_close.format(type=self._type_of(value)) if self.typed else self.key_close
            pad = self.loose if self.loose and written.startswith(self.loose) else self.pad
            parts += [self.key_open, key, close, self.value_open, pad, written, pad, self.value_close]
            parts.append(self.between)
        return "".join([*parts, self.closing])

    def _wrapped(self, text: str) -> str:
        opening, closing = self.wraps
        return f"{opening}{text}{closing}" if opening and _WRAPPED.search(text) else text

    def _type_of(self, value: Any) -> str:
        if self.typed == "string":
            return "true" if isinstance(value, str) else "false"
        names = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
        return names.get(type(value), "null")

    def rule(self, name: str, schema: Mapping[str, Any], lark: Lark) -> str:
        before, indexed, after = self.name_close.partition("{index}")
        head = lark.text(self.name_open + name + before) + (f" /[0-9]{{1,3}}/ {lark.text(after)}" if indexed else "")
        last = lark.text(self.closing)
        return " ".join(part for part in (head, lark.pairs(schema, self._pair, ""), last) if part)

    def _pair(self, key: str, schema: Mapping[str, Any], lark: Lark) -> str:
        types = types_of({"properties": {"": schema}, **_shared(schema)}, "")
        textual = "string" in types
        close = self.key_close
        if self.typed:
            close = close.format(type=_TEXTUAL[self.typed != "string"] if textual else self._type_word(types))
        opening = lark.text(close + self.value_open + self.pad)
        ending = self.pad + self.value_close
        choices = [value for value in schema.get("enum", ()) if isinstance(value, str)]
        if textual and choices and types == TEXT:
            value = f"({' | '.join(quoted(choice) for choice in choices)}) {lark.text(ending)}"
        elif textual:
            value = lark.text_before(schema if types == TEXT else {}, ending, self.wraps)
        else:
            value = f"{lark.json(schema)} {lark.text(ending)}"
        named = lark.text(self.key_open + key) if key else f"{lark.text(self.key_open)} {ANY_KEY}"
        return " ".join(part for part in (named, opening, value, lark.text(self.between)) if part)

    def _type_word(self, types: frozenset[str]) -> str:
        return "false" if self.typed == "string" else min(types)


def _shared(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: schema[name] for name in ("$defs", "definitions") if name in schema}


class _Arguments:
    """Reads the arguments of one call. If a key comes twice, its first value is sent, and the second one is dropped."""

    def __init__(self, notation: TaggedNotation, stream: TextStream, call: Calling) -> None:
        self._notation, self._stream, self._call = notation, stream, call
        self._keys: set[str] = set()
        self._close, next_key = notation.value_close.strip(), notation.key_open.strip().rstrip('"')
        over = tuple(text for text in (notation.closing.strip(), *call.ends) if text)
        self._next_key = next_key
        self._next = marks_of((next_key, *over))
        self._closings = over
        self._after_value = (next_key, *over, *call.openings)
        self._after_call = (*call.ends, *call.openings) or None

    def read(self) -> Reading[None]:
        """Reads all arguments, up to the end of the call. The notation's own closing tag is taken from the stream; the
        marks in `call.ends` are left in it. Other text between the tags is dropped."""
        yield from self._stream.space()
        if (yield from self._stream.starts("{")):
            return (yield from self._object())
        mark = yield from self._stream.until(self._next, _nowhere)
        while mark.strip() == self._next_key:
            mark = yield from self._argument()
            if mark and mark.strip() not in (*self._closings, self._next_key):
                mark = yield from self._stream.until(self._next, _nowhere)
        if mark:
            self._call.argue("}" if self._keys else "{}")
        self._give_back(mark)

    def _object(self) -> Reading[None]:
        """Reads all arguments as one object of JSON, which a model sometimes writes."""
        yield from read_value(self._stream, self._call.argue)
        self._give_back((yield from self._stream.until(self._next, _nowhere)))

    def _give_back(self, mark: str) -> None:
        if mark and mark.strip() in self._call.ends:
            self._stream.back(mark)

    def _argument(self) -> Reading[str]:
        """Reads one argument, the key and the value, and sends both to the Calling. Returns the mark at which the value
        ended; "" where the model's text ended first."""
        notation, stream = self._notation, self._stream
        yield from stream.match('"')
        key = (yield from stream.word(_KEY, MOST_NAME)).strip()
        types = types_of(self._call.schema, key)
        if notation.typed:
            yield from stream.match('"')
            types = self._said((yield from stream.word(_ATTRIBUTES, MOST_NAME)), types)
            yield from stream.match(notation.key_close.rpartition('"')[2].strip())
        else:
            yield from stream.match('"')
            yield from stream.match(notation.key_close.lstrip('"').strip())
        if notation.value_open.strip():
            yield from stream.space()
            yield from stream.match(notation.value_open.strip())
        padded = bool(notation.loose) and (yield from stream.match(notation.loose))
        pad = notation.loose if padded else notation.pad
        yield from stream.match(notation.pad)
        shown = bool(key) and key not in self._keys
        if shown:
            self._call.argue(f"{', ' if self._keys else '{'}{dumped(key)}: ")
            self._keys.add(key)
        return (yield from self._value(types, self._call if shown else None, self._ends(pad)))

    def _ends(self, pad: str) -> Followed:
        """Returns the texts that end a value, each with the texts that must follow it. Some models forget to close a
        value: then the next key ends it, if the tool has that key, and so does the end of the call."""
        line, keys = self._notation.pad, self._known_keys()
        before = {line, line + self._notation.between}
        found: dict[str, Sequence[str] | None] = {space + self._next_key: keys for space in before}
        found |= {space + text: self._after_call for space in before for text in self._closings}
        return found | dict.fromkeys((pad + self._close, self._close), self._after_value)

    def _known_keys(self) -> tuple[str, ...] | None:
        """Returns the texts that may follow key_open: each key of the tool's schema, with the character that ends a key
        in this notation. Returns None where the schema lists no properties."""
        schema = self._call.schema
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(properties, dict):
            return None
        closing = self._notation.key_close.partition("{")[0].strip()[:1]
        bare = self._notation.key_close.lstrip('"').strip()[:1]
        return tuple(text for key in properties for text in (f'"{key}"', key + closing, key + bare))

    def _value(self, types: frozenset[str], call: Calling | None, ends: Followed) -> Reading[str]:
        opening, closing = self._notation.wraps
        if opening and (yield from self._stream.match(opening)):
            mark = yield from self._bare(types, call, {closing: (self._close,)})
            return (yield from self._stream.until(marks_of(tuple(ends)), _nowhere)) if mark else mark
        return (yield from self._bare(types, call, ends))

    def _bare(self, types: frozenset[str], call: Calling | None, ends: Followed) -> Reading[str]:
        parts: list[str] = []
        if types != TEXT or call is None:
            mark = yield from self._stream.until_followed(ends, parts.append)
            if mark and call is not None:
                call.argue(as_json("".join(parts), types))
            return mark
        call.argue('"')
        mark = yield from self._stream.until_followed(ends, lambda text: call.argue(inner(text)))
        if mark:
            call.argue('"')
        return mark

    def _said(self, attributes: str, types: frozenset[str]) -> frozenset[str]:
        """Returns the JSON types that a value may have by the attributes of its key's tag: only `string`, or all other
        types. Without a type among the attributes, returns `types`."""
        found = _TYPE.search(attributes)
        if found is None:
            return types
        return TEXT if found[1] in _TEXTUAL else _JSON


_KEY = re.compile(r"[^<>\"\n]*")
_JSON = frozenset(("object", "array", "integer", "number", "boolean", "null"))


def _nowhere(_text: str) -> None:
    return


