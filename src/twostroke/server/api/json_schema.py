"""Functions that write JSON schemas of answers."""

from __future__ import annotations

from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
OBJECT: dict[str, Any] = {"type": "object"}


def or_null(kind: str) -> dict[str, Any]:
    """Returns the schema of a value of this type, or null."""
    return {"type": [kind, "null"]}


def maybe(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a value that fits `schema`, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def object_of(**properties: Any) -> dict[str, Any]:
    """Returns the schema of an object in which every key is required, and further keys are allowed."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def list_of(item: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a list with any number of these items."""
    return {"type": "array", "items": item}
