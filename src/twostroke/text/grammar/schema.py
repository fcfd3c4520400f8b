"""Turns JSON schemas, as common libraries write them, into the form that the compiler accepts, by these rules.

    adapted({"type": "object", "properties": {"a": {"type": "string", "format": "path"}}})

- An object with `properties` or `patternProperties` takes no other keys, unless the
  schema has a rule for other keys.
- A `format` that the compiler does not know is an annotation; base64 and a few more have patterns in `formats`.
- A pattern with look-around is left out next to a `format` that the compiler knows; anywhere else it is refused.
- `propertyNames` is enforced for names that are enumerated or that fit a pattern or a length.
- `uniqueItems` is enforced where the schema enumerates at most MAX_UNIQUE values for the items. Where it enumerates
  more, items may repeat, but a list has at most as many items as there are values. Elsewhere it is not enforced.
- A keyword that would change the answer and is not implemented is refused.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from twostroke.text.grammar.formats import COMPILER_FORMATS, narrowed_string
from twostroke.text.grammar.numbers import narrowed_number
from twostroke.text.grammar.pointers import Pointers, joined, shown
from twostroke.text.grammar.rewrites import rewritten
from twostroke.text.grammar.unheld import Unheld
from twostroke.types.errors import InvalidRequest

MAX_UNIQUE = 4
MAX_NAMED_BYTES = 1024 * 1024
"""The largest size, in bytes, of all objects of a schema whose names `propertyNames` enumerates. Each name gets a copy
of the schema of its values."""
MAX_PARTS = 10_000
"""The most parts of a schema for the compiler. Some rules write a part out many times, and where such parts are nested,
each level multiplies: a schema of 700 bytes can become millions of parts."""

Schema = dict[str, Any]
_NOT_SUPPORTED = (
    "not if then else dependentRequired dependentSchemas dependencies contains minContains maxContains "
    "unevaluatedProperties unevaluatedItems $dynamicRef $recursiveRef"
).split()
_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_ONE_SCHEMA = ("additionalProperties", "items", "additionalItems")
_COMPOSED = ("allOf", "anyOf", "oneOf", "$ref")
_MERGED = {"type", "properties", "required", "title", "description", "$schema", "$comment", "default", "examples"}


class Adapted(NamedTuple):
    """A schema for the compiler, and what it leaves out. schema: the schema. not_held: in words, the parts of the given
    schema that this one does not enforce."""

    schema: Any
    not_held: tuple[str, ...]


def adapted(schema: Any) -> Any:
    """Returns the schema for the compiler, made of a schema that `check` has passed. The given schema is not changed.

    Raises InvalidRequest with param "grammar".
    """
    return adapted_in_words(schema).schema


def adapted_in_words(schema: Any) -> Adapted:
    """Returns what `adapted` returns, and words for the parts of the schema that are not enforced."""
    adapter = _Adapter(schema)
    return Adapted(adapter.adapted(), tuple(dict.fromkeys(adapter.unheld.words)))


class _Adapter:
    """Rewrites one JSON schema into the form that the compiler accepts, by the rules of this module, from the outermost
    schema to the inner ones."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._pointers = Pointers(root)
        self._open = self._parts_of_compositions()
        self._num_parts = self._named_bytes = 0
        self.unheld = Unheld(root)

    def adapted(self) -> Any:
        return self._schema(self._root, "")

    def _schema(self, schema: Any, at: str) -> Any:
        if not isinstance(schema, dict):
            return schema
        self._num_parts += 1
        if self._num_parts > MAX_PARTS:
            raise InvalidRequest(
                f"The JSON schema has more than {MAX_PARTS:,} parts when it is written out.",
                why="Each level of nested contains, propertyNames or counts of properties multiplies them.",
                fix="Nest them less.",
                param="grammar",
            )
        schema = self._rewritten(schema, at)
        _refuse_unsupported(schema, at)
        made = self._merged(schema, at)
        for rule in (self._property_names, self._unique, self._closed):
            made = rule(made, at)
        made = self.unheld.held(narrowed_number(narrowed_string(made, at), at), shown(at))
        for name in _SCHEMAS_BY_NAME:
            if isinstance(made.get(name), dict):
                made[name] = {key: self._schema(value, joined(at, name, key)) for key, value in made[name].items()}
        for name in _LISTS_OF_SCHEMAS:
            if isinstance(made.get(name), list):
                made[name] = [self._schema(value, joined(at, name, place)) for place, value in enumerate(made[name])]
        for name in _ONE_SCHEMA:
            if isinstance(made.get(name), dict):
                made[name] = self._schema(made[name], joined(at, name))
        return made

    def _rewritten(self, schema: Schema, at: str) -> Schema:
        """Returns the schema in the keywords that the compiler has (module `rewrites`). A rewrite may move parts of the
        schema into an `anyOf`. Where a `$ref` points to such a part, returns the schema unchanged."""
        made = rewritten(schema)
        moved = ("anyOf" in made) != ("anyOf" in schema)
        named = [joined(at, name) for name in schema if name not in ("$defs", "definitions")]
        return schema if moved and any(map(self._pointers.lead_into, named)) else made

    def _merged(self, schema: Schema, at: str) -> Schema:
        """Joins objects in an `allOf` that name different properties into one object, which can then be closed."""
        made = dict(schema)
        if "unevaluatedProperties" in made:  # where it still stands, it is a boolean without a composition
            made.setdefault("additionalProperties", made.pop("unevaluatedProperties"))
        objects = self._objects(schema, at)
        if objects is None or at in self._open:
            return made
        properties = {name: value for each in objects for name, value in each.get("properties", {}).items()}
        required = list(dict.fromkeys(name for each in objects for name in each.get("required", ())))
        kept = {name: value for name, value in made.items() if name not in _MERGED and name != "allOf"}
        return {**kept, "type": "object", "properties": properties, "required": required}

    def _objects(self, schema: Schema, at: str) -> list[Schema] | None:
        """Returns the schemas that one object must fit together: the schema without its `allOf`, and the schemas in the
        `allOf`. Returns None where they cannot become one object schema, for example because two of them name the same
        property."""
        parts = schema.get("allOf")
        if not isinstance(parts, list) or self._pointers.lead_into(joined(at, "allOf")):
            return None
        own = {name: value for name, value in schema.items() if name not in ("allOf", "$defs", "definitions")}
        objects = [own, *(self._pointers.resolved(part) for part in parts)]
        if not all(map(_is_plain_object, objects)):
            return None
        names = [name for each in objects for name in each.get("properties", {})]
        return objects if len(set(names)) == len(names) else None

    def _property_names(self, schema: Schema, at: str) -> Schema:
        if "propertyNames" not in schema:
            return schema
        made = dict(schema)
        rule = self._pointers.resolved(made.pop("propertyNames"))
        if rule is False:
            return {**made, "properties": {}, "additionalProperties": False}
        if not isinstance(rule, dict):
            return made
        names = self._values(rule)
        pattern = None if names is not None else _name_pattern(rule, at)
        if names is None and pattern is None:
            return made
        if self._pointers.lead_into(joined(at, "additionalProperties")):
            raise _refused("propertyNames", at, "A $ref points into the schema of its values.")
        if names is not None:
            return self._with_names(made, [name for name in names if isinstance(name, str)], at)
        if made.get("properties") or made.get("patternProperties"):
            raise _refused("propertyNames", at, "Next to properties it is supported with enumerated names alone.")
        values = made.get("additionalProperties", {})
        return {**made, "patternProperties": {pattern: values}, "additionalProperties": False}

    def _with_names(self, schema: Schema, names: list[str], at: str) -> Schema:
        """Returns the object schema with a property for each of these names, and with all other names forbidden."""
        properties = schema.get("properties") if isinstance(schema.get("properties"), dict) else {}
        values = schema.get("additionalProperties", {})
        self._named_bytes += len(names) * len(json.dumps(values))
        if self._named_bytes > MAX_NAMED_BYTES:
            raise _refused("propertyNames", at, "It has too many names for a schema of values of this size.")
        own = properties or {}
        return {**schema, "properties": {n: own.get(n, values) for n in names}, "additionalProperties": False}

    def _unique(self, schema: Schema, at: str) -> Schema:
        if "uniqueItems" not in schema:
            return schema
        made = dict(schema)
        if made.pop("uniqueItems") is not True or "prefixItems" in made:
            return made
        values = self._values(made.get("items"))
        if values is None:
            return made
        most = made.get("maxItems")
        made["maxItems"] = min(most, len(values)) if isinstance(most, int) else len(values)
        if len(values) > MAX_UNIQUE or "anyOf" in made:
            return made
        orders = itertools.chain.from_iterable(
            itertools.permutations(values, count) for count in range(_whole(made.get("minItems")), made["maxItems"] + 1)
        )
        lists = [_exactly(order) for order in orders]
        return {**made, "anyOf": lists} if lists and made.get("type") == "array" else made

    def _closed(self, schema: Schema, at: str) -> Schema:
        """Sets additionalProperties to False where the schema names its keys, see the rules of this module. A schema in
        an allOf stays open: an object must fit all schemas of the allOf, so each must allow the keys that the others
        name."""
        named = schema.get("properties", {})
        names_keys = isinstance(schema.get("properties"), dict) or isinstance(schema.get("patternProperties"), dict)
        if not names_keys or not isinstance(named, dict) or at in self._open:
            return schema
        if any(name in schema for name in ("additionalProperties", *_COMPOSED)):
            return schema
        closed = {**schema, "additionalProperties": False}
        if schema.get("patternProperties"):
            return closed
        required = schema.get("required")
        missing = [name for name in required if name not in named] if isinstance(required, list) else []
        if _whole(schema.get("minProperties")) > len(named) + len(missing):
            return schema
        return {**closed, "properties": {**named, **{name: {} for name in missing}}}

    def _values(self, schema: Any) -> list[Any] | None:
        """Returns every value that fits the schema; None where the schema does not enumerate its values."""
        schema = self._pointers.resolved(schema)
        if not isinstance(schema, dict):
            return None
        if "const" in schema:
            return [schema["const"]]
        if isinstance(schema.get("enum"), list):
            return _distinct(schema["enum"])
        if schema.get("type") == "boolean":
            return [True, False]
        for name in ("anyOf", "oneOf"):
            if isinstance(schema.get(name), list):
                found = [self._pointers.resolved(part) for part in schema[name]]
                flat = [_plain_values(part) for part in found]
                return None if None in flat else _distinct(value for part in flat for value in part or ())
        return None

    def _parts_of_compositions(self) -> set[str]:
        """Returns the JSON pointers of schemas that describe an object only together with others, through allOf, anyOf,
        oneOf or $ref. Such a schema must allow further keys."""
        found: set[str] = set()
        for at, schema in _all_schemas(self._root, ""):
            around = len([name for name in ("properties", *_COMPOSED) if name in schema])
            for name in ("allOf", "anyOf", "oneOf"):
                parts = schema.get(name)
                merges = name == "allOf" and at not in found and self._objects(schema, at) is not None
                if not isinstance(parts, list) or merges:
                    continue
                if around > 1 or at in found or (name == "allOf" and len(parts) > 1):
                    found.update(joined(at, name, place) for place in range(len(parts)))
            if "$ref" in schema and (around > 1 or at in found):
                found.update(self._pointers.targets(schema))
        return self._followed(found)

    def _followed(self, found: set[str]) -> set[str]:
        """Returns these JSON pointers, and those of all schemas that their schemas refer to or combine."""
        todo = list(found)
        while todo:
            at = todo.pop()
            schema = self._pointers.at(at)
            if not isinstance(schema, dict):
                continue
            more = self._pointers.targets(schema)
            for name in ("allOf", "anyOf", "oneOf"):
                if isinstance(schema.get(name), list):
                    more += [joined(at, name, place) for place in range(len(schema[name]))]
            todo += [each for each in more if each not in found]
            found.update(more)
        return found


def _all_schemas(schema: Any, at: str) -> Iterator[tuple[str, Schema]]:
    """Yields the JSON pointer of every schema and the schema, from the outside in."""
    if not isinstance(schema, dict):
        return
    yield at, schema
    for name in _SCHEMAS_BY_NAME:
        if isinstance(schema.get(name), dict):
            for key, value in schema[name].items():
                yield from _all_schemas(value, joined(at, name, key))
    for name in _LISTS_OF_SCHEMAS:
        if isinstance(schema.get(name), list):
            for place, value in enumerate(schema[name]):
                yield from _all_schemas(value, joined(at, name, place))
    for name in _ONE_SCHEMA:
        yield from _all_schemas(schema.get(name), joined(at, name))


def _refuse_unsupported(schema: Schema, at: str) -> None:
    for name in _NOT_SUPPORTED:
        closes = name == "unevaluatedProperties" and not any(each in schema for each in _COMPOSED)
        if name in schema and not (closes and isinstance(schema[name], bool)):
            raise _refused(name, at)


def _refused(keyword: str, at: str, why: str = "") -> InvalidRequest:
    return InvalidRequest(
        f"The JSON schema uses {keyword!r} at {shown(at)}, which is not supported{'' if why else ' here'}.",
        param="grammar",
        why=why,
        fix="Describe the answer without it.",
    )


def _is_plain_object(schema: Any) -> bool:
    if not isinstance(schema, dict) or not set(schema) <= _MERGED:
        return False
    lists = isinstance(schema.get("properties", {}), dict) and isinstance(schema.get("required", []), list)
    return lists and schema.get("type", "object") == "object"


def _name_pattern(rule: Schema, at: str) -> str | None:
    """Returns the pattern of the names that `propertyNames` allows; None where every name fits."""
    kept = {name for name in rule if name not in ("type", "title", "description", "$schema", "$comment", "examples")}
    if rule.get("format") not in COMPILER_FORMATS:
        kept.discard("format")
    if rule.get("type", "string") != "string":
        raise _refused("propertyNames", at, "Names are strings.")
    if not kept:
        return None
    if kept == {"pattern"} and isinstance(rule["pattern"], str):
        return rule["pattern"]
    if kept <= {"minLength", "maxLength"}:
        most = rule.get("maxLength")
        return rf"^[\s\S]{{{_whole(rule.get('minLength'))},{most if isinstance(most, int) else ''}}}$"
    raise _refused("propertyNames", at, "It is supported with enumerated names, with a pattern, or with a length.")


def _plain_values(schema: Any) -> list[Any] | None:
    if isinstance(schema, dict) and "const" in schema:
        return [schema["const"]]
    values = schema.get("enum") if isinstance(schema, dict) else None
    return values if isinstance(values, list) else None


def _distinct(values: Any) -> list[Any]:
    """Returns the different values in their order; 1 and true are two values, as in JSON."""
    return list({json.dumps(value, sort_keys=True): value for value in values}.values())


def _exactly(values: tuple[Any, ...]) -> Schema:
    size = {"type": "array", "minItems": len(values), "maxItems": len(values)}
    return {**size, "prefixItems": [{"const": value} for value in values]} if values else size


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
