"""Keywords that the compiler lacks, written with those that it has. Each answer of the new form fits the old one.

- `nullable` of OpenAPI 3.0 allows null.
- `not` of types leaves the other types; `not` of everything leaves nothing.
- `dependentRequired`: the properties that another property would require are always required.
- `contains`: the array begins with the items that it must contain.
- `minProperties` and `maxProperties` next to optional properties: each allowed set of properties becomes one form of
  an `anyOf`, where there are few sets.
- Patterns of `patternProperties` that have the same schema are joined into one pattern.
- A count that is written as 10.0 becomes 10.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]
MAX_SETS = 64
COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties", "minContains")
_TYPES = ("object", "array", "string", "number", "boolean", "null")
_COMPOSED = ("anyOf", "oneOf", "allOf", "$ref")


def rewritten(schema: Schema) -> Schema:
    """Returns the schema in the compiler's keywords, as far as these rules go. The given schema is not changed."""
    for rule in _RULES:
        schema = rule(schema)
    return schema


def _whole_counts(schema: Schema) -> Schema:
    counts = {name: schema[name] for name in COUNTS if name in schema}
    made = {name: int(value) for name, value in counts.items() if isinstance(value, float) and value.is_integer()}
    return {**schema, **made} if made else schema


def _nullable(schema: Schema) -> Schema:
    if schema.get("nullable") is not True:
        return {name: value for name, value in schema.items() if name != "nullable"} if _flag(schema) else schema
    made = {name: value for name, value in schema.items() if name != "nullable"}
    if any(name in made for name in _COMPOSED) or "const" in made:
        above: Schema = {name: made.pop(name) for name in ("$defs", "definitions", "$schema", "title") if name in made}
        return {**above, "anyOf": [made, {"type": "null"}]}
    kind = made.get("type")
    if isinstance(kind, str):
        made["type"] = [kind, "null"] if kind != "null" else kind
    if isinstance(made.get("enum"), list) and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    return made


def _flag(schema: Schema) -> bool:
    return isinstance(schema.get("nullable"), bool)


def _without(schema: Schema) -> Schema:
    """Removes a `not` that excludes only types, and sets `type` to the types that are left."""
    excluded = schema.get("not")
    if excluded in ({}, True):
        return {"enum": []}
    if not isinstance(excluded, dict) or set(excluded) != {"type"} or any(name in schema for name in _COMPOSED):
        return schema
    names = excluded["type"] if isinstance(excluded["type"], list) else [excluded["type"]]
    kinds = schema.get("type", list(_TYPES))
    left = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind not in names]
    if "integer" in names and "number" in left:
        return schema
    made = {name: value for name, value in schema.items() if name != "not"}
    return {**made, "type": left} if left else {"enum": []}


def _dependent(schema: Schema) -> Schema:
    lists = schema.get("dependentRequired")
    if not isinstance(lists, dict) or not all(_names(each) for each in lists.values()):
        return schema
    made = {name: value for name, value in schema.items() if name != "dependentRequired"}
    required = made.get("required") if isinstance(made.get("required"), list) else []
    return {**made, "required": list(dict.fromkeys([*(required or ()), *itertools.chain(*lists.values())]))}


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _contains(schema: Schema) -> Schema:
    if not isinstance(schema.get("contains"), (dict, bool)) or "maxContains" in schema or "prefixItems" in schema:
        return schema
    items, count = schema.get("items", True), schema.get("minContains", 1)
    if not isinstance(items, (dict, bool)) or not isinstance(count, int) or count > MAX_SETS:
        return schema
    made = {name: value for name, value in schema.items() if name not in ("contains", "minContains")}
    if not count:
        return made
    first = schema["contains"] if items is True else {"allOf": [items, schema["contains"]]}
    least = made.get("minItems", 0)
    made["minItems"] = max(count, least) if isinstance(least, int) else least
    return {**made, "prefixItems": [first] * count, "items": items}


def _counted(schema: Schema) -> Schema:
    named, least, most = schema.get("properties"), schema.get("minProperties", 0), schema.get("maxProperties")
    if not isinstance(named, dict) or not isinstance(least, int) or not isinstance(most, (int, type(None))):
        return schema
    open_names = schema.get("additionalProperties", False) is not False or schema.get("patternProperties")
    required = schema.get("required", [])
    if open_names or not _names(required) or any(name in schema for name in _COMPOSED):
        return schema
    optional = [name for name in named if name not in required]
    if ("minProperties" not in schema and most is None) or not optional or 2 ** len(optional) > MAX_SETS:
        return schema
    if least > len(named) and "additionalProperties" not in schema:
        return schema  # the object needs more names than it declares, so it is open
    rest = {n: v for n, v in schema.items() if n not in ("properties", "required", "minProperties", "maxProperties")}
    kept = [name for name in rest if name in ("type", "additionalProperties")]
    shared = {name: rest.pop(name) for name in kept}
    sets = [
        chosen
        for size in range(len(optional) + 1)
        for chosen in itertools.combinations(optional, size)
        if least <= size + len(required) <= (len(named) if most is None else most)
    ]
    forms = []
    for chosen in sets:
        names = [name for name in named if name in required or name in chosen]
        more = [name for name in required if name not in named]
        forms.append({**shared, "properties": {n: named[n] for n in names}, "required": [*names, *more]})
    return {**rest, "anyOf": [{**form, "additionalProperties": False} for form in forms]} if forms else {"enum": []}


def _one_pattern(schema: Schema) -> Schema:
    patterns = schema.get("patternProperties")
    if not isinstance(patterns, dict) or len(patterns) < 2:
        return schema
    groups: dict[str, list[str]] = {}
    for pattern, value in patterns.items():
        groups.setdefault(json.dumps(value, sort_keys=True), []).append(pattern)
    joined = {_either(each): patterns[each[0]] for each in groups.values()}
    return {**schema, "patternProperties": joined}


def _either(patterns: list[str]) -> str:
    return patterns[0] if len(patterns) == 1 else "|".join(f"(?:{pattern})" for pattern in patterns)


_RULES: tuple[Callable[[Schema], Schema], ...] = (
    _whole_counts,
    _nullable,
    _without,
    _dependent,
    _contains,
    _counted,
    _one_pattern,
)
