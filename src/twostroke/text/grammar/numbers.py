"""Limits the length of numbers, and their values to those that a double or 64 bits can hold.

The compiler (llguidance) allows numbers of any length, and an uncertain model writes digits for ever. So a grammar that
may write numbers with a fraction gets a second grammar, and a token must be allowed by both. The second grammar allows
any JSON with numbers of bounded length. Integers are bounded in the schema itself: their minimum and maximum are moved
to values that fit 64 bits.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

from twostroke.text.grammar.guard_child import FORM, WHITESPACE
from twostroke.text.grammar.pointers import shown
from twostroke.text.grammar.unheld import LARGEST_MULTIPLE
from twostroke.types.errors import InvalidRequest

Schema = dict[str, Any]
LARGEST_INT = 2**63 - 1024
"""The largest double below 2**63. llguidance keeps the minimum and maximum of integers as doubles."""
LARGEST_HELD = 1e15
"""The largest minimum or maximum that llguidance enforces for numbers of the type `number`."""
MAX_LISTED = 1024
"""The most multiples in an enum that replaces a multipleOf above LARGEST_MULTIPLE, which llguidance could not enforce.
"""
FRACTION_DIGITS = 17
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_JSON_RULE = re.compile(r"^(\w+): %json (\{.*\})$", re.MULTILINE)


def narrowed_number(schema: Schema, at: str) -> Schema:
    """Returns the schema with bounds of numbers that the compiler can enforce; they are as narrow as the given ones, or
    narrower. at: the JSON pointer of the schema. Raises InvalidRequest where no integer of 64 bits fits."""
    listed = [*(schema["enum"] if isinstance(schema.get("enum"), list) else ()), schema.get("const")]
    for value in _numbers_in(listed):
        if isinstance(value, int) and abs(value) < 2**64 and float(value) != value:
            raise _not_a_double(value, at)
    kinds = schema.get("type")
    types = kinds if isinstance(kinds, list) else [kinds]
    if any(not _is_number(schema[name]) for name in _BOUNDS if name in schema and not _is_flag(schema, name)):
        return schema  # the compiler reports the fault
    if "integer" in types and "number" not in types:
        return _narrowed_integer(schema, at)
    return _narrowed_fraction(schema, at) if any(name in schema for name in (*_BOUNDS, "multipleOf")) else schema


def bounded(source: str) -> str | None:
    """Returns the second grammar of this module, which bounds the lengths of numbers and is enforced in addition to
    `source`. source: a grammar in llguidance's Lark. Returns None where no second grammar is needed, because `source`
    allows no numbers with a fraction. Also returns None where a number in it has more than 19 digits."""
    places, free = 0, False

    def replaced(rule: re.Match[str]) -> str:
        nonlocal places, free
        schema = json.loads(rule[2])
        if schema.pop("x-guidance", None) != FORM:
            return rule[0]
        free = free or _may_write_fractions(schema)
        places = max(places, _places(schema))
        return f"{rule[1]}: json_value"

    made = _JSON_RULE.sub(replaced, source)
    if not free or places < 0:
        return None
    return made + "\n" + _JSON.replace("NUMBER_PATTERN", _number_pattern(max(FRACTION_DIGITS, places + 2)))


def _narrowed_integer(schema: Schema, at: str) -> Schema:
    low, high = _integer_bounds(schema)
    low, high = max(low, -(2**63)), min(high, 2**63 - 1)
    given = [name for name in _BOUNDS if name in schema]
    if low > high:
        if given and not _contradict(schema):
            raise InvalidRequest(f"No integer of 64 bits fits the {given[0]} at {shown(at)}.", param="grammar")
        return schema
    made = {name: value for name, value in schema.items() if name not in _BOUNDS}
    step = made.get("multipleOf")
    if isinstance(step, int) and not isinstance(step, bool) and step > LARGEST_MULTIPLE:
        first, last = -(-low // step), high // step
        if 0 <= last - first < MAX_LISTED and "enum" not in made:
            del made["multipleOf"]
            return {**made, "enum": [n * step for n in range(first, last + 1)]}
    inner_low, inner_high = _double_above(low), -_double_above(-high)
    if inner_low > inner_high:
        raise _not_a_double(low, at)
    return {**made, "minimum": inner_low, "maximum": inner_high}


def _integer_bounds(schema: Schema) -> tuple[int, int]:
    """Returns the least and the largest integer that the schema allows within 64 bits."""
    lows, highs = [-(2**63)], [2**63 - 1]
    for name, value in _bounds_of(schema).items():
        if abs(value) == math.inf:
            continue
        if name == "minimum":
            lows.append(math.ceil(value))
        elif name == "exclusiveMinimum":
            lows.append(math.floor(value) + 1)
        elif name == "maximum":
            highs.append(math.floor(value))
        else:
            highs.append(math.ceil(value) - 1)
    return max(lows), min(highs)


def _narrowed_fraction(schema: Schema, at: str) -> Schema:
    made = {name: value for name, value in schema.items() if name not in _BOUNDS}
    for name, value in _bounds_of(schema).items():
        least = name.lower().endswith("minimum")
        outwards = -value if least else value
        if outwards < -LARGEST_HELD:
            raise InvalidRequest(f"The {name} at {shown(at)} is beyond 1e15, which is not supported.", param="grammar")
        if outwards < _DOUBLE_MAX:
            made[name] = max(value, -LARGEST_HELD) if least else min(value, LARGEST_HELD)
    return made


_DOUBLE_MAX = 1.7976931348623157e308


def _bounds_of(schema: Schema) -> dict[str, Any]:
    """Returns the bounds of a schema as numbers, by keyword. The form of Draft 4, `minimum` with `exclusiveMinimum:
    true`, is returned as the number of exclusiveMinimum; the same for the maximum."""
    found = {name: schema[name] for name in _BOUNDS if name in schema and _is_number(schema[name])}
    for plain, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(exclusive) is True and plain in found:
            found[exclusive] = found.pop(plain)
    return found


def _contradict(schema: Schema) -> bool:
    bounds = _bounds_of(schema)
    lows = [value for name, value in bounds.items() if name.lower().endswith("minimum")]
    highs = [value for name, value in bounds.items() if name.lower().endswith("maximum")]
    return bool(lows and highs) and max(lows) > min(highs)


def _double_above(value: int) -> int:
    """Returns the least integer not below `value` that a double holds exactly. It is at least -LARGEST_INT, because
    llguidance also needs its negative."""
    step = 1 << max(0, abs(value).bit_length() - 53)
    return max(-LARGEST_INT, -(-value // step) * step)


def _numbers_in(value: Any) -> list[Any]:
    if isinstance(value, (dict, list)):
        return [each for part in (value.values() if isinstance(value, dict) else value) for each in _numbers_in(part)]
    return [value] if _is_number(value) else []


def _not_a_double(value: int, at: str) -> InvalidRequest:
    return InvalidRequest(
        f"The number {value} at {shown(at)} cannot be held exactly.",
        param="grammar",
        why="Numbers of a schema are doubles, which hold whole numbers up to 9007199254740992.",
        fix="Use a string for such a number.",
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_flag(schema: Schema, name: str) -> bool:
    return name.startswith("exclusive") and isinstance(schema[name], bool)


def _may_write_fractions(schema: Any) -> bool:
    """Returns False where the schema allows no numbers except integers and enumerated ones, True where it may allow
    others."""
    if not isinstance(schema, dict):
        return schema is not False
    named = (schema.get(word) for word in ("$defs", "definitions", "properties", "patternProperties"))
    inner = [part for each in named if isinstance(each, dict) for part in each.values()]
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        inner += schema[word] if isinstance(schema.get(word), list) else []
    if any(map(_may_write_fractions, inner)):
        return True
    if any(word in schema for word in ("enum", "const", "$ref", "anyOf", "oneOf", "allOf")):
        return False
    kinds = schema.get("type", ["number"])
    types = kinds if isinstance(kinds, list) else [kinds]
    rest = {"object": "additionalProperties", "array": "items"}
    return "number" in types or any(
        _may_write_fractions(schema.get(word, True)) for kind, word in rest.items() if kind in types
    )


def _places(schema: Any) -> int:
    """Returns the largest number of decimal places of any number in the schema. Returns -1 if a number has more than 19
    digits before its decimal point."""
    most = 0
    for value in _numbers_in(schema):
        written = Decimal(repr(value))
        if written.adjusted() > 18 and written:
            return -1
        most = max(most, -int(written.as_tuple().exponent))
    return most


def _up_to(digits: str) -> str:
    """Returns a pattern of the numbers with as many digits as `digits` that are not above it."""
    parts = [digits]
    for place, digit in enumerate(digits):
        least = 1 if place == 0 else 0
        if int(digit) > least:
            parts.append(f"{digits[:place]}[{least}-{int(digit) - 1}][0-9]{{{len(digits) - place - 1}}}")
    return "|".join(parts)


def _number_pattern(places: int) -> str:
    """Returns a pattern of numbers of 64 bits, with a fraction of up to `places` digits, and with an exponent that
    leaves them finite."""
    whole = f"(0|[1-9][0-9]{{0,17}}|{_up_to(str(2**63 - 1))})"
    fraction = rf"(\.[0-9]{{1,{places}}})?"
    small = r"-(0?[0-9]{1,2}|[12][0-9]{2}|30[0-7])"
    exponent = rf"([eE]({small}|\+?(0?[0-9]{{1,2}}|1[0-9]{{2}}|2[0-7][0-9]|28[0-8])))?"
    large = rf"[1-9]{fraction}[eE]\+?(289|29[0-9]|30[0-7])"
    return f"-?({whole}{fraction}{exponent}|{large})|{-(2**63)}"


_JSON = r'''json_value: JSON_STRING | JSON_NUMBER | JSON_WORD | json_object | json_array
json_object: JSON_BRACE "}" | JSON_BRACE json_pair (JSON_COMMA json_pair)* JSON_BRACE_END
json_pair: JSON_STRING JSON_COLON json_value
json_array: JSON_BRACKET "]" | JSON_BRACKET json_value (JSON_COMMA json_value)* JSON_BRACKET_END
JSON_BRACE: /\{SPACE/
JSON_BRACE_END: /SPACE\}/
JSON_BRACKET: /\[SPACE/
JSON_BRACKET_END: /SPACE\]/
JSON_COMMA: /SPACE,SPACE/
JSON_COLON: /SPACE:SPACE/
JSON_STRING: /"([^"\\\x00-\x1f]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/
JSON_WORD: /true|false|null/
JSON_NUMBER: /NUMBER_PATTERN/
'''.replace("SPACE", WHITESPACE)
