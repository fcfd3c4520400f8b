"""Reads a format that the checkpoint itself describes: `response_template` of tokenizer_config.json, in transformers'
terms.

    described({"fields": {"tool_calls": {"open": "<call>", "close": "</call>", "content": "json", ...}, ...}})

No pattern of a file runs on a model's output. A pattern of literal text, white space and named groups is translated,
and a description with any other pattern is not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from twostroke.text.talk.format import CallForm, Format, Notation, ThoughtMarks
from twostroke.text.talk.learn.older_schema import as_fields
from twostroke.text.talk.notations.braces import BracesNotation
from twostroke.text.talk.notations.named import NamedNotation
from twostroke.text.talk.notations.object import ObjectNotation
from twostroke.text.talk.notations.tagged import TaggedNotation

THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking")
_TOKEN = re.compile(
    r"(?P<group>\(\?P<(?:name|key|value)>[^()]*\))"
    r"|(?P<space>(?:\\s|\\n|\\r|\\t)[*+?]?)"
    r"|\\(?P<escaped>[^A-Za-z0-9])"
    r"|(?P<plain>[^\\()\[\]{}.*+?^$|])"
)


def described(value: Any) -> Format | None:
    """Returns the format that a `response_template`, or an older `response_schema`, describes; None where the value is
    neither of them, or has parts that cannot be translated."""
    fields = value.get("fields", as_fields(value)) if isinstance(value, Mapping) else None
    if not isinstance(fields, Mapping):
        return None
    calls = fields.get("tool_calls")
    form = _calls(calls) if isinstance(calls, Mapping) else None
    thought = next((_thought(fields[name]) for name in THOUGHT_FIELDS if isinstance(fields.get(name), Mapping)), None)
    if form is None and (calls is not None or thought is None):
        return None
    return Format("described", calls=() if form is None else (form,), thought=thought)


def _thought(field: Mapping[str, Any]) -> ThoughtMarks | None:
    opening, closing = _edge(field, "open"), _edge(field, "close")
    return ThoughtMarks(opening, closing) if opening and closing else None


def _calls(field: Mapping[str, Any]) -> CallForm | None:
    opened, close = _parts(field, "open"), _edge(field, "close")
    if not opened or close is None:
        return None
    more = field.get("content_args")
    arguments = more if isinstance(more, Mapping) else {}
    if len(opened) == 1:
        notation = _object(field) if field.get("content") == "json" and not arguments else None
        return CallForm(notation, opened[0], close) if notation else None
    begin, middle = opened[0], opened[1]
    made: Notation | None = None
    if field.get("content") == "xml-inline":
        made = _tagged(middle, arguments)
    elif field.get("content") == "json" and not arguments and middle:
        made = NamedNotation(middle)
    elif field.get("content") == "json" and arguments.get("unquoted_keys") and not middle:
        made = _braces(begin, arguments)
        begin = begin[: len(begin) - len(made.before)] if isinstance(made, BracesNotation) else begin
    return CallForm(made, begin, close) if made is not None and begin.strip() else None


def _object(field: Mapping[str, Any]) -> ObjectNotation | None:
    """Returns the notation of calls that are JSON objects. field: the description of `tool_calls`; its `transform` has
    the keys of the name and the arguments where they are not `name` and `arguments`."""
    transform = field.get("transform")
    function = transform.get("function") if isinstance(transform, Mapping) else None
    if function in (None, "{content}"):
        return ObjectNotation()
    if not isinstance(function, Mapping):
        return None
    found = [re.fullmatch(r"\{content\.(\w+)\}", str(function.get(key))) for key in ("name", "arguments")]
    name, arguments = found
    return ObjectNotation(name[1], arguments[1]) if name and arguments else None


def _tagged(middle: str, arguments: Mapping[str, Any]) -> TaggedNotation | None:
    parts = literals(arguments.get("tag_pattern"))
    if parts is None or len(parts) != 3 or not (parts[0].strip() and parts[2].strip()):
        return None
    key_open, between, value_close = parts
    found = re.match(r"([^<]*>|[^<]*</[^>]*>)\s*(.*)$", between, re.DOTALL)
    key_close, value_open = (found[1], found[2]) if found else (between, "")
    return TaggedNotation(
        name_open="",
        name_close=middle,
        key_open=key_open,
        key_close=key_close,
        value_open=value_open,
        value_close=value_close,
    )


def _braces(begin: str, arguments: Mapping[str, Any]) -> BracesNotation | None:
    marks = arguments.get("string_delims")
    pairs = marks if isinstance(marks, list) else []
    if len(pairs) != 1 or not isinstance(pairs[0], list) or len(pairs[0]) != 2 or pairs[0][0] != pairs[0][1]:
        return None
    words = re.search(r"[A-Za-z_]+:$", begin)
    return BracesNotation(words[0], pairs[0][0]) if words else None


def _edge(field: Mapping[str, Any], name: str) -> str | None:
    """Returns the literal text before or after a field's value, as the description gives it. name: `open` or `close`.
    Returns None where the description gives no text, or a regular expression with groups or with other parts."""
    parts = _parts(field, name)
    return parts[0] if parts and len(parts) == 1 else None


def _parts(field: Mapping[str, Any], name: str) -> list[str] | None:
    text = field.get(name)
    if isinstance(text, list):
        text = text[0] if text else None
    return [text] if isinstance(text, str) else literals(field.get(f"{name}_pattern"))


def literals(pattern: Any) -> list[str] | None:
    """Returns the literal texts of a regular expression, split at its named groups; None for an expression with other
    parts.

    Patterns of white space may stand at the ends of a text, and between two tags. A pattern that begins with a line end
    and has no `*` becomes one line end; all other patterns of white space are left out. Of several alternatives, the
    first counts.
    """
    if not isinstance(pattern, str):
        return None
    made, place, spaced = [""], 0, False
    if pattern.startswith("(?:") and (end := pattern.find(")")) > 0:
        pattern = pattern[3:end].partition("|")[0] + pattern[end + 1 :]
    while place < len(pattern) and pattern[place] != "|":
        found = _TOKEN.match(pattern, place)
        if found is None:
            return None
        character = found["escaped"] or found["plain"]
        if found["group"]:
            made.append("")
        elif character:
            before = made[-1].rstrip("\n")
            if spaced and before and not (before.endswith(">") and character == "<"):
                return None
            made[-1] += character
        elif found["space"].startswith("\\n") and not found["space"].endswith("*"):
            made[-1] += "\n"
        spaced = bool(found["space"])
        place = found.end()
    return made
