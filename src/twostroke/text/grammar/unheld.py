"""Removes the parts of a schema that a grammar does not enforce, and describes them in words for the client.

- Lengths of strings above HELD_CHARACTERS. The compiler has about nine states for each character that a bound counts,
  and a matcher may have 50,000 of them. Bounds of the same length share their states. The shortest bounds are enforced
  first.
- A `multipleOf` above 2**31, or whose digits without zeros at the end are above LARGEST_MULTIPLE, such as 1.2345.
- `minProperties` and `maxProperties` next to optional properties, where the module `rewrites` found too many
  combinations of properties to list them.

`minItems` and `maxItems` cost no states and are always enforced.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

HELD_CHARACTERS = 4096
"""The largest sum of the different string lengths (`minLength`, `maxLength`) that one grammar enforces. A length that
several bounds have is added once."""
LARGEST_COUNT = 2**31 - 1
"""The largest `minItems`, `maxItems`, `minProperties` and `maxProperties`; a larger one is replaced by this value. No
answer is so long."""
_LENGTHS = ("maxLength", "minLength")
_COUNTS = ("minItems", "maxItems", "minProperties", "maxProperties")


LARGEST_MULTIPLE = 10_000
"""The largest multipleOf that is enforced, as a whole number without the zeros at its end: 0.5 counts as 5, 200 as 2.
The compiler's automaton has about as many states as this number."""


class Unheld:
    """Removes from the parts of one schema the bounds that are too expensive for a grammar to enforce. words: a
    description of each removed bound, for the client."""

    def __init__(self, root: Any) -> None:
        self.words: list[str] = []
        self._held, left = set[int](), HELD_CHARACTERS
        for length in sorted(set(_lengths(root))):
            left -= length
            if left < 0:
                break
            self._held.add(length)

    def held(self, schema: dict[str, Any], place: str) -> dict[str, Any]:
        """Returns a copy of one part of the schema without the bounds that are not enforced. place: where the part
        stands in the schema, for the descriptions in `words`."""
        made = dict(schema)
        for name in _COUNTS:
            if _is_count(made.get(name)):
                made[name] = min(made[name], LARGEST_COUNT)
        for name in _LENGTHS:
            length = made.get(name)
            if _is_count(length) and length not in self._held:
                self._leave_out(made, name, place, f"a grammar counts to {HELD_CHARACTERS} characters")
        if _is_fine(made.get("multipleOf")):
            self._leave_out(made, "multipleOf", place, f"a grammar holds multiples of at most {LARGEST_MULTIPLE}")
        for name in _too_many_sets(made):
            self._leave_out(made, name, place, "a grammar does not count properties that may be left out")
        return made

    def _leave_out(self, schema: dict[str, Any], name: str, place: str, why: str) -> None:
        self.words.append(f"{name} {schema.pop(name)} at {place} is not held: {why}")


def _is_fine(step: Any) -> bool:
    """Returns True where the grammar cannot enforce this multipleOf, because it has too many digits or is above 2**31.
    """
    if isinstance(step, bool) or not isinstance(step, (int, float)) or step <= 0:
        return False
    return int("".join(map(str, Decimal(repr(step)).normalize().as_tuple().digits))) > LARGEST_MULTIPLE or step > 2**31


def _too_many_sets(schema: dict[str, Any]) -> list[str]:
    """Returns those of minProperties and maxProperties that the schema has and the compiler would refuse."""
    named, required = schema.get("properties"), schema.get("required", [])
    least, most = schema.get("minProperties", 0), schema.get("maxProperties")
    if not isinstance(named, dict) or not isinstance(required, list) or not isinstance(least, int):
        return []
    if all(name in required for name in named) or (least <= len(required) and most is None):
        return []
    closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    if closed and least <= len(required) + 1 and most in (None, len(required) + 1):
        return []
    return [name for name in ("minProperties", "maxProperties") if name in schema]


def _lengths(root: Any) -> Iterator[int]:
    todo = [root]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            yield from (int(item[name]) for name in _LENGTHS if _is_count(item.get(name)))
            todo += item.values()
        elif isinstance(item, list):
            todo += item


def _is_count(value: Any) -> bool:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and value >= 0
