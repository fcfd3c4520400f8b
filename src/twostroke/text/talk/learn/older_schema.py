"""Translates the older description of answers, `response_schema` of tokenizer_config.json, into the terms of
`response_template`.

    as_fields({"properties": {"tool_calls": {"x-regex-iterator": "<call>(.*?)</call>", "items": {"x-parser": "json"}}}})

Patterns of literal text around groups are translated. A part with any other pattern is left out, and a description
whose calls are left out is not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_GROUP = re.compile(r"\((?:\?P<value>)?(?:\.|\[\\s\\S\])[*+]\??\)")
_NAMED = re.compile(r"\(\?P<(?P<name>\w+)>(?:[^()\\\[]|\\.|\[[^\]]*\])*\)")
_TRANSFORMED = re.compile(r"function:\s*\{\s*name:\s*(?P<name>\w+)\s*,\s*arguments:\s*(?P<arguments>\w+)\s*\}")
_BRACES = re.compile(r"[\w-]*gemma4[\w-]*")
_QUOTE = '<|"|>'
THOUGHTS = ("thinking", "reasoning_content", "reasoning")


def as_fields(schema: Any) -> dict[str, Any] | None:
    """Translates a `response_schema` into the `fields` of a `response_template`; None where the value is not a schema,
    or has calls that cannot be translated."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return None
    made: dict[str, Any] = {}
    for name in THOUGHTS:
        edges = _edges(_text(properties.get(name), "x-regex"))
        if edges:
            made["thinking"] = {"open": edges[0], "close": edges[1], "content": "text"}
            break
    calls = properties.get("tool_calls")
    if isinstance(calls, Mapping):
        field = _calls(calls)
        if field is None:
            return None
        made["tool_calls"] = field
    return made or None


def _calls(calls: Mapping[str, Any]) -> dict[str, Any] | None:
    iterator, items = _text(calls, "x-regex-iterator"), calls.get("items")
    if not iterator or not isinstance(items, Mapping):
        return None
    inner = items.get("properties")
    function = inner.get("function") if isinstance(inner, Mapping) else None
    own = _text(function, "x-regex") or iterator
    arguments = _arguments(function if _text(function, "x-regex") or function else items)
    outer = _edges(iterator)
    if items.get("x-parser") == "json" and outer:
        return {"open": outer[0], "close": outer[1], "content": "json", **_transform(items)}
    groups = [found["name"] for found in _NAMED.finditer(own)]
    if groups != ["name", "arguments"]:
        return None
    before, between, after = _around(own)
    opening, closing = ("", "") if own is iterator else (outer or (None, None))
    if opening is None or closing is None:
        return None
    head = f"{re.escape(opening)}{before}(?P<name>\\w+){between}"
    return _named(head, after + re.escape(closing), arguments)


def _named(head: str, closing: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    pairs, parser = _text(arguments, "x-regex-key-value"), _text(arguments, "x-parser")
    made: dict[str, Any] = {"open_pattern": head, "close_pattern": closing}
    if pairs:
        return {**made, "content": "xml-inline", "content_args": {"tag_pattern": pairs}}
    if parser == "json":
        return {**made, "content": "json"}
    if _BRACES.fullmatch(parser):
        more = {"unquoted_keys": True, "string_delims": [[_QUOTE, _QUOTE]]}
        return {**made, "content": "json", "content_args": more}
    return None


def _transform(items: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `transform` entry, which names the keys of a call's JSON object for the name and the arguments;
    empty where the schema does not name these keys."""
    options = items.get("x-parser-args")
    found = _TRANSFORMED.search(_text(options, "transform"))
    if found is None:
        return {}
    function = {key: f"{{content.{found[key]}}}" for key in ("name", "arguments")}
    return {"transform": {"type": "function", "function": function}}


def _arguments(function: Any) -> Mapping[str, Any]:
    inner = function.get("properties") if isinstance(function, Mapping) else None
    found = inner.get("arguments") if isinstance(inner, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _around(pattern: str) -> tuple[str, str, str]:
    """Splits a regular expression that has two named groups. Returns the parts before the first group, between the
    groups, and after the second group."""
    first, second = list(_NAMED.finditer(pattern))
    return pattern[: first.start()], pattern[first.end() : second.start()], pattern[second.end() :]


def _edges(pattern: str) -> tuple[str, str] | None:
    """Returns the literal texts around the one group of a pattern; None for any other pattern."""
    groups = list(_GROUP.finditer(pattern))
    if len(groups) != 1:
        return None
    texts = [_literal(part) for part in (pattern[: groups[0].start()], pattern[groups[0].end() :])]
    opening, closing = texts
    return (opening, closing) if opening and closing else None


def _literal(pattern: str) -> str | None:
    """Returns the text of a pattern without choices; white space in it is left out. Returns None for any other pattern.
    """
    bare = re.sub(r"\\[sn][*+?]?", "", pattern)
    text = re.sub(r"\\(\W)", r"\1", bare)
    return None if re.search(r"(?<!\\)[()\[\]*+?^$]", bare) or re.search(r"\\\w", bare) else text


def _text(value: Any, key: str) -> str:
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else ""
