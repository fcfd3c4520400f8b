"""Notation "nested": every value is a tag, objects and lists too, and a tool's schema gives the types of values at
every depth.

    P<invoke name="shelf">P<place>P<rows>P<item>1P</item>P</rows>P</place>P</invoke>      P is a prefix of each tag

A text argument streams; any other argument is sent when it is whole. A text ends at its own closing tag, but only if
another tag follows it. All tags before that place are a part of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from twostroke.text.grammar.pointers import Pointers
from twostroke.text.talk.calling import Calling
from twostroke.text.talk.hold.lark import ANY_KEY, NOTHING, Lark
from twostroke.text.talk.notations.json_text import dumped, inner
from twostroke.text.talk.notations.named import MOST_NAME, NAME
from twostroke.text.talk.stream import Reading, TextStream, marks_of
from twostroke.text.talk.typed_text import TEXT, as_json, named_types, types_of

_TAG = re.compile(r"[^<>\n]*")
ITEM = "item"
MOST_DEPTH = 32


class NestedNotation(Struct, frozen=True):
    """The syntax of tool calls in which every value of the arguments is a tag, objects and lists too. prefix: the text
    in front of each tag. Satisfies `Notation`."""

    prefix: str

    @property
    def lead(self) -> str:
        return self._invoke

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.prefix,)

    @property
    def _invoke(self) -> str:
        return f"{self.prefix}<invoke name="

    def fits(self, stream: TextStream) -> Reading[bool]:
        return (yield from stream.starts(self._invoke))

    def read(self, stream: TextStream, call: Calling) -> Reading[None]:
        yield from stream.match(self._invoke)
        yield from stream.match('"')
        name = yield from stream.word(NAME, MOST_NAME)
        yield from stream.match('"')
        if name and (yield from stream.match(">")) and call.name(name):
            yield from _Tags(self.prefix, stream, call).read()

    def write(self, name: str, arguments: Mapping[str, Any], call_id: str) -> str:
        """Returns the text of a call. Null values are left out."""
        inside = "".join(self._tag(key, value) for key, value in arguments.items())
        return f'{self._invoke}"{name}">{inside}{self.prefix}</invoke>'

    def _tag(self, key: str, value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, Mapping):
            inside = "".join(self._tag(each, own) for each, own in value.items())
        elif isinstance(value, list | tuple):
            inside = "".join(self._tag(ITEM, each) for each in value)
        else:
            inside = value if isinstance(value, str) else dumped(value)
        return f"{self.prefix}<{key}>{inside}{self.prefix}</{key}>"

    def rule(self, name: str, schema: Mapping[str, Any], lark: Lark) -> str:
        root = Pointers(schema)

        def pair(key: str, own: Mapping[str, Any], lark: Lark) -> str:
            return self._rule_of(key, root.resolved(own), root, lark, 0)

        head, last = lark.text(f'{self._invoke}"{name}">'), lark.text(self.prefix + "</invoke>")
        parts = (head, lark.pairs(schema, pair, ""), last)
        return " ".join(part for part in parts if part)

    def _rule_of(self, key: str, schema: Any, root: Pointers, lark: Lark, depth: int) -> str:
        opening, closing = f"{self.prefix}<", f"{self.prefix}</"
        schema = schema if isinstance(schema, dict) and depth < MOST_DEPTH else {}
        types = types_of({"properties": {"": schema}}, "")

        def pair(name: str, own: Mapping[str, Any], lark: Lark) -> str:
            return self._rule_of(name, root.resolved(own), root, lark, depth + 1)

        if "object" in types:
            inside = lark.pairs(schema, pair, "") if depth < MOST_DEPTH else ""
        elif "array" in types:
            item = lark.rule(self._rule_of(ITEM, root.resolved(schema.get("items")), root, lark, depth + 1))
            inside = lark.times(item, "", schema)
        elif types.isdisjoint(TEXT):
            inside = lark.json({**schema, "type": sorted(types)})
        elif types == TEXT and schema.get("enum"):
            inside = f"({' | '.join(lark.text(str(each)) or NOTHING for each in schema['enum'])})"
        else:
            inside, closing = lark.text_before(schema if types == TEXT else {}, closing), ""
        named = f"{lark.text(opening)} {lark.text(key) or ANY_KEY} {lark.text('>')}"
        return f"{named} {inside} {lark.text(closing)} {lark.text(key) or ANY_KEY} {lark.text('>')}"


class _Tags:
    """Reads the arguments of one call, which are nested tags."""

    def __init__(self, prefix: str, stream: TextStream, call: Calling) -> None:
        self._stream, self._call = stream, call
        self._marks = marks_of((prefix + "</", prefix + "<"))
        self._closing = prefix + "</"
        self._prefix = (prefix,)
        self._root = call.schema if isinstance(call.schema, dict) else {}
        self._pointers = Pointers(self._root)

    def read(self) -> Reading[None]:
        """Reads the arguments of one call, up to the call's closing tag, and sends them as JSON to the Calling."""
        keys: set[str] = set()
        while True:
            mark = yield from self._stream.until(self._marks, _nowhere)
            tag = yield from self._tag()
            if not mark or tag is None:
                return
            if mark == self._closing:
                self._call.argue("}" if keys else "{}")
                return
            say = self._call.argue if tag not in keys else _nowhere
            say(f"{', ' if keys else '{'}{dumped(tag)}: ")
            keys.add(tag)
            schema = self._child(self._root, tag)
            if self._types(schema) == TEXT:
                whole = yield from self._text(tag, say)
            else:
                value = yield from self._value(schema, 0)
                whole = value is not None
                say(value or "")
            if not whole:
                return

    def _text(self, tag: str, say: Callable[[str], object]) -> Reading[bool]:
        """Reads the text up to the closing tag of the argument `tag`, and sends it to `say` as a JSON string. Returns
        False where the model's text ends before that closing tag."""
        say('"')
        closing = f"{self._closing}{tag}>"
        mark = yield from self._stream.until_followed({closing: self._prefix}, lambda text: say(inner(text)))
        say('"' if mark else "")
        return bool(mark)

    def _tag(self) -> Reading[str | None]:
        tag = yield from self._stream.word(_TAG, MOST_NAME)
        return tag if (yield from self._stream.match(">")) else None

    def _value(self, schema: Any, depth: int) -> Reading[str | None]:
        """Reads a value with the tags nested in it, up to its closing tag, and returns it as JSON. Returns None where
        the model's text ends before that tag, or where tags are nested too deeply."""
        parts: list[str] = []
        children: list[tuple[str, str]] = []
        while True:
            mark = yield from self._stream.until(self._marks, parts.append)
            tag = yield from self._tag()
            if not mark or tag is None or depth > MOST_DEPTH:
                return None
            if mark == self._closing:
                return self._made("".join(parts), children, self._types(schema))
            below = self._child(schema, tag)
            if self._named(below) == TEXT:
                texts: list[str] = []
                whole = yield from self._text(tag, texts.append)
                child = "".join(texts) if whole else None
            else:
                child = yield from self._value(below, depth + 1)
            if child is None:
                return None
            children.append((tag, child))

    def _made(self, text: str, children: list[tuple[str, str]], types: frozenset[str]) -> str:
        items = all(tag == ITEM for tag, _ in children) and not text.strip()
        if items and ("array" in types or (children and "object" not in types)):
            return _listed(value for _, value in children)
        if children or ("object" in types and not text.strip()):
            found: dict[str, list[str]] = {}
            for tag, value in children:
                found.setdefault(tag, []).append(value)
            pairs = (f"{dumped(tag)}: {each[0] if len(each) == 1 else _listed(each)}" for tag, each in found.items())
            return "{" + ", ".join(pairs) + "}"
        return as_json(text, types)

    def _child(self, schema: Any, tag: str) -> Any:
        """Returns the schema of a tag's value."""
        waiting, seen = [schema], 0
        while waiting and seen < MOST_DEPTH:
            seen += 1
            part = self._pointers.resolved(waiting.pop(0))
            if not isinstance(part, dict):
                continue
            found = part.get("items") if tag == ITEM and "items" in part else (part.get("properties") or {}).get(tag)
            found = part.get("additionalProperties") if found is None else found
            if isinstance(found, dict):
                return found
            waiting += [each for kind in ("anyOf", "oneOf", "allOf") for each in part.get(kind) or ()]
        return {}

    def _named(self, schema: Any) -> frozenset[str]:
        return named_types({**self._root, "properties": {"": schema}}, "")

    def _types(self, schema: Any) -> frozenset[str]:
        return self._named(schema) or TEXT


def _listed(values: Iterable[str]) -> str:
    return f"[{', '.join(values)}]"


def _nowhere(_text: str) -> None:
    return
