"""Adds values that some chat templates need and most clients leave out: fields of a tool's schema, values of variables.

Each value is given only to a template that fails without it, so that every other template renders the same text as
before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

Tools = Sequence[Mapping[str, Any]]
OtherValues = Callable[[Tools | None], dict[str, Any]]
"""A function from the tools that a request offers (None for no tools) to values of a template's variables."""
_LISTS = ("anyOf", "oneOf", "allOf")


def a_list_always(tools: Tools | None) -> dict[str, Any]:
    """Returns values for templates that iterate over the tools without a check whether there are any."""
    return {"tools": list(tools or ())}


def as_text(tools: Tools | None) -> dict[str, Any]:
    """Returns values for Firefunction's template, which takes the functions as JSON, and today's date."""
    functions = [tool.get("function", tool) for tool in tools or ()]
    text = json.dumps(functions, indent=4, ensure_ascii=False)
    return {"functions": text, "datetime": date.today().isoformat()}


OTHER_VALUES: tuple[OtherValues, ...] = (a_list_always, as_text)
"""The functions that give values to a template's variables. Where a template fails, they are tried in this order."""


def completed(tools: Tools) -> list[dict[str, Any]]:
    """Returns the same tools with an empty value for each missing field that templates read, such as `description`."""
    return [_tool(tool) for tool in tools]


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return dict(tool)
    made = {"description": "", **function, "parameters": _schema(function.get("parameters") or {"type": "object"})}
    return {**tool, "function": made}


def _schema(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {"description": "", **schema}
    kinds = schema.get("type")
    if kinds == "object":
        made = {"required": [], "properties": {}, "additionalProperties": {}, **made}
        made["properties"] = {key: _schema(own) for key, own in dict(made["properties"] or {}).items()}
    elif kinds == "array":
        made["items"] = _schema(schema.get("items") or {})
    return made | {name: [_schema(each) for each in schema[name]] for name in _LISTS if schema.get(name)}
