"""Turns values that a model writes as bare text into JSON, by the types in a tool's schema."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any

from twostroke.text.talk.notations.json_text import JsonText

TEXT = frozenset({"string"})
MOST_PARTS, MOST_VALUES = 64, 256
_WORDS = {"true": "boolean", "false": "boolean", "null": "null", "none": "null"}


def types_of(schema: Any, key: str) -> frozenset[str]:
    """Returns the JSON types, such as "integer", that the schema allows for argument `key`; only "string" where the
    schema names no type. The result is never empty."""
    return named_types(schema, key) or TEXT


def named_types(schema: Any, key: str) -> frozenset[str]:
    """The types that the schema names for argument `key`."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    found = properties.get(key) if isinstance(properties, dict) else None
    return frozenset(_types(found, schema))


def as_json(text: str, types: frozenset[str]) -> str:
    """Returns the text as JSON of one of the types. A text that fits none becomes a string: the client sees what the
    model wrote."""
    bare = text.strip()
    word = _WORDS.get(bare.lower())
    if word in types:
        return "null" if word == "null" else bare.lower()
    try:
        value = json.loads(bare, parse_constant=_refuse)
    except (ValueError, RecursionError):
        value = None if bare[:1] not in ("{", "[", "(") else _pythons(bare)
        if value is None:
            return json.dumps(text, ensure_ascii=False)
        bare = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) or types.isdisjoint(_names(value)):  # strings are written without quotes
        return json.dumps(text, ensure_ascii=False)
    return bare


def _types(schema: Any, root: Any) -> Iterator[str]:
    """Returns the types that a schema names. A client wrote the schema: at most MOST_PARTS parts of it are looked at,
    however its references go."""
    waiting = deque([schema])
    for _ in range(MOST_PARTS):
        part = waiting.popleft() if waiting else None
        if not isinstance(part, dict):
            continue
        named = part.get("type")
        yield from (each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str))
        values = [*_list(part.get("enum"))[:MOST_VALUES], *([part["const"]] if "const" in part else [])]
        yield from (_names(value)[0] for value in values)
        for kind in ("anyOf", "oneOf", "allOf"):
            waiting.extend(_list(part.get(kind))[:MOST_PARTS])
        if isinstance(part.get("$ref"), str):
            waiting.append(_referred(root, part["$ref"]))


def _referred(root: Any, reference: str) -> Any:
    """Returns the target of a reference within the schema itself, such as "#/$defs/Name"; None for any other reference.
    """
    if not reference.startswith("#/"):
        return None
    for step in reference[2:].split("/"):
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, dict) else None
    return root


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _names(value: Any) -> tuple[str, ...]:
    """Returns the names of the JSON types of this value; the type that fits best comes first, as integer for 3."""
    if isinstance(value, bool):
        return ("boolean",)
    if isinstance(value, int):
        return ("integer", "number")
    if isinstance(value, float):
        return ("number", "integer") if value.is_integer() else ("number",)
    kinds: dict[type, str] = {str: "string", list: "array", dict: "object", type(None): "null"}
    return (kinds.get(type(value), "string"),)


def _pythons(text: str) -> Any:
    """Returns the value of JSON that is written with Python's words and quotes, such as {'a': True}; None for other
    text. Templates write such text into histories, so models learn to write it."""
    value = JsonText()
    made, length = value.take(text, True)
    try:
        return json.loads(made) if value.done and length == len(text) else None
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
