"""Places in a JSON document: pointers (RFC 6901), and the targets of a schema's `$ref`."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

MAX_STEPS = 32


class Pointers:
    """Resolves the JSON pointers and `$ref`s of one schema. A `$ref` into another document is not resolved."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._targets = frozenset(_all_targets(root))

    def at(self, pointer: str) -> Any:
        """Returns the value at this place; None where there is none."""
        found = self._root
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                return None
        return found

    def resolved(self, schema: Any) -> Any:
        """Returns the target of a schema that is only a reference; returns any other schema unchanged."""
        for _ in range(MAX_STEPS):
            targets = self.targets(schema)
            if not targets or not set(schema) <= {"$ref", "title", "description", "default"}:
                return schema
            schema = self.at(targets[0])
        return schema

    def targets(self, schema: Any) -> list[str]:
        """Returns a list with the JSON pointer to which this schema's own `$ref` points. The list is empty without a
        `$ref`, or if it points into another document."""
        ref = schema.get("$ref") if isinstance(schema, dict) else None
        return [unquote(ref[1:])] if isinstance(ref, str) and (ref == "#" or ref.startswith("#/")) else []

    def lead_into(self, pointer: str) -> bool:
        """Returns True where some `$ref` of the root schema points to this place or to a place below it."""
        return any(target == pointer or target.startswith(f"{pointer}/") for target in self._targets)


def joined(pointer: str, *steps: str | int) -> str:
    """Returns the pointer of the value that these steps reach from `pointer`."""
    return pointer + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def shown(pointer: str) -> str:
    """Returns the pointer in the form $.properties.name."""
    return ("$" + pointer.replace("/", ".").replace("~1", "/").replace("~0", "~"))[:200]


def _all_targets(root: Any) -> list[str]:
    found, todo = [], [root]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            ref = item.get("$ref")
            if isinstance(ref, str) and ref.startswith("#"):
                found.append(unquote(ref[1:]))
            todo += item.values()
        elif isinstance(item, list):
            todo += item
    return found
