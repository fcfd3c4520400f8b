"""Tool calls of earlier turns in the form that templates expect: names, ids, and arguments as an object where possible.

A model may have written broken arguments, or a client kept them in another form. Then they stay as text: the model sees
what it wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twostroke.text.history.parts import as_json
from twostroke.types.notes import Notes, named

NO_NAME = "unknown_tool"
TEXT_ARGUMENT = "input"
"""The argument's name for a custom tool (OpenAI's API), whose input is one text. Its calls get this text as their only
argument."""


def calls_of(value: Any, place: int, notes: Notes) -> list[dict[str, Any]]:
    """Returns the calls of message number `place`. Nothing is refused; an entry that is not a call is left out."""
    listed = [value] if isinstance(value, Mapping) else value
    if not isinstance(listed, Sequence) or isinstance(listed, (str, bytes)):
        notes.add("tool_calls that are no list were left out")
        return []
    made = []
    for number, call in enumerate(listed):
        if isinstance(call, Mapping):
            made.append(_call(call, f"call_{place}_{number}", notes))
        else:
            notes.add("a tool call that is no object was left out")
    return made


def id_of(value: Any) -> str | None:
    """Returns an id of a call as text, also where a client wrote it as a number; None where it is no id."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def _call(call: Mapping[str, Any], own_id: str, notes: Notes) -> dict[str, Any]:
    function = _function(call)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        notes.add(f"a tool call without a name was named {NO_NAME}")
        name = NO_NAME
    arguments = arguments_of(function.get("arguments"))
    if not isinstance(arguments, Mapping):
        notes.add(f"arguments of a call of {named(name)} are no JSON object and were kept as text")
    made = {key: value for key, value in call.items() if key not in ("custom", "function") and value is not None}
    made |= {"id": id_of(call.get("id")) or id_of(call.get("call_id")) or own_id, "type": "function"}
    return {**made, "function": {**function, "name": name, "arguments": arguments}}


def arguments_of(value: Any) -> Any:
    """Returns the arguments as an object, or as text where they are not an object."""
    if value is None or value == "":
        return {}
    if not isinstance(value, str):
        return value if isinstance(value, Mapping) else as_json(value)
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value if value.strip() else {}
    if found is None:
        return {}
    return found if isinstance(found, dict) else value


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function, custom = call.get("function"), call.get("custom")
    if isinstance(function, Mapping):
        return function
    if isinstance(custom, Mapping):
        return {"name": custom.get("name"), "arguments": {TEXT_ARGUMENT: custom.get("input") or ""}}
    return {"name": call.get("name"), "arguments": call.get("arguments")}
