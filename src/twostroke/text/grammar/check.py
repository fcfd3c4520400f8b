"""Prepares a grammar before a compiler sees it: checks depth, counts and lengths, and adapts schemas."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from twostroke.text.grammar.schema import Adapted, adapted_in_words
from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import MAX_CHOICES, MAX_REGEX_BYTES, Grammar, GrammarKind

MAX_SCHEMA_DEPTH = 32
MAX_SCHEMA_NODES = 16384


def checked(grammar: Grammar) -> str:
    """Returns the grammar's text for the compiler. Raises InvalidRequest with param "grammar"."""
    if grammar.kind is not GrammarKind.JSON_SCHEMA:
        return grammar.text
    return _dumped(checked_in_words(_parsed(grammar.text)).schema)


def not_held(grammar: Grammar) -> tuple[str, ...]:
    """Returns, in words for the client, the parts of the grammar's schema that are not enforced. Raises as `checked`
    does."""
    if grammar.kind is not GrammarKind.JSON_SCHEMA:
        return ()
    return checked_in_words(_parsed(grammar.text)).not_held


def checked_in_words(schema: Any) -> Adapted:
    """Returns the schema for the compiler, and the parts that the compiler does not enforce, in words for a note to the
    client. Raises InvalidRequest for a schema that no client needs and that could overload a compiler."""
    _check_schema(schema)
    return adapted_in_words(schema)


def _dumped(schema: Any) -> str:
    try:
        return json.dumps(schema, allow_nan=False)
    except ValueError:
        _no_number("above 1.8e308")


def _no_number(text: str) -> NoReturn:
    """Raises InvalidRequest for NaN and infinities, which Python would read."""
    raise InvalidRequest(
        f"The JSON schema holds a number that is not finite ({text}), which no JSON holds.", param="grammar"
    )


def _parsed(text: str) -> Any:
    try:
        schema = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise InvalidRequest("The JSON schema is no JSON.", param="grammar", why=f"{error}.") from None
    if not isinstance(schema, (dict, bool)):
        raise InvalidRequest("A JSON schema is an object or a boolean.", param="grammar")
    return schema


def _check_schema(schema: Any) -> None:
    """Checks a schema breadth first, so that no depth can exhaust the stack."""
    level, num_nodes, num_enums = [schema], 0, 0
    for _ in range(MAX_SCHEMA_DEPTH):
        num_nodes += len(level)
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                num_enums += _check_object(item)
            below.extend(_children(item))
        if num_enums > MAX_CHOICES:
            raise InvalidRequest(f"The JSON schema has more than {MAX_CHOICES:,} enum values.", param="grammar")
        if num_nodes > MAX_SCHEMA_NODES:
            raise InvalidRequest(f"The JSON schema has more than {MAX_SCHEMA_NODES:,} parts.", param="grammar")
        if not below:
            return
        level = below
    raise _too_deep()


def _check_object(schema: dict[str, Any]) -> int:
    """Checks the keywords of one schema object, but not the schemas nested in it. Returns the number of values in its
    `enum`, which the caller adds up and limits."""
    patterns = [schema.get("pattern"), *_keys(schema.get("patternProperties"))]
    for pattern in patterns:
        if isinstance(pattern, str) and len(pattern.encode("utf-8", errors="surrogatepass")) > MAX_REGEX_BYTES:
            raise InvalidRequest(f"A pattern has more than {MAX_REGEX_BYTES:,} bytes.", param="grammar")
    values = schema.get("enum")
    return len(values) if isinstance(values, list) else 0


def _keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else []


def _children(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return list(item.values())
    return item if isinstance(item, list) else []


def _too_deep() -> InvalidRequest:
    return InvalidRequest(f"The JSON schema is nested more than {MAX_SCHEMA_DEPTH} levels deep.", param="grammar")
