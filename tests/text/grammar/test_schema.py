"""The rules by which schemas are adapted: what is closed, what stays open, what is refused and with which words."""

from __future__ import annotations

import itertools
import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from twostroke.text.grammar.faults import in_users_terms
from twostroke.text.grammar.numbers import LARGEST_INT
from twostroke.text.grammar.schema import MAX_UNIQUE, adapted
from twostroke.types.errors import InvalidRequest

INTEGER: dict[str, Any] = {"type": "integer"}
HELD: dict[str, Any] = {**INTEGER, "minimum": -LARGEST_INT, "maximum": LARGEST_INT}
A: dict[str, Any] = {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]}
B: dict[str, Any] = {"type": "object", "properties": {"b": INTEGER}, "required": ["b"]}


def fits(schema: Any, value: Any) -> bool:
    return bool(jsonschema_rs.is_valid(schema, value))


@pytest.mark.parametrize(
    "schema",
    [
        A,
        {"properties": {"a": INTEGER}},
        {"type": ["object", "null"], "properties": {"a": INTEGER}},
        {"$defs": {"A": A}, "$ref": "#/$defs/A"},
        {"anyOf": [A, {"type": "null"}]},
        {"oneOf": [A, B]},
        {"allOf": [A]},
        {**A, "required": ["a", "x"]},
        {**A, "unevaluatedProperties": False},
        {"$defs": {"A": A, "B": B}, "anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]},
        {"type": "object", "patternProperties": {"^a$": INTEGER}},
        {"$defs": {"N": {**A, "properties": {"a": INTEGER, "n": {"$ref": "#/$defs/N"}}}}, "$ref": "#/$defs/N"},
    ],
    ids=json.dumps,
)
def test_an_object_that_names_its_keys_takes_no_others(schema: Any) -> None:
    made = adapted(schema)
    value = {"a": 1, **({"x": 1} if "x" in schema.get("required", ()) else {})}
    assert fits(schema, value) and fits(made, value)
    assert not fits(made, {**value, "other": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {**A, "additionalProperties": True},
        {**A, "additionalProperties": {}},
        {**A, "additionalProperties": INTEGER},
        {**A, "unevaluatedProperties": True},
        {"type": "object"},
        {"type": "object", "required": ["a"]},
        {**A, "minProperties": 2},
        {**A, "anyOf": [B, {"required": ["other"]}]},
    ],
    ids=json.dumps,
)
def test_one_that_says_something_of_other_keys_stays_as_it_is(schema: Any) -> None:
    assert fits(adapted(schema), {"a": 1, "other": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [A, B]},
        {**A, "allOf": [B]},
        {"$defs": {"A": A}, "allOf": [{"$ref": "#/$defs/A"}, B]},
        {"$defs": {"A": A}, "$ref": "#/$defs/A", **B},
        {"$defs": {"A": A, "C": {"allOf": [{"$ref": "#/$defs/A"}]}}, "allOf": [{"$ref": "#/$defs/C"}, B]},
        {**A, "anyOf": [B, {"type": "object", "properties": {"c": INTEGER}, "required": ["c"]}]},
        {"allOf": [{"anyOf": [A, B]}, {"properties": {"b": INTEGER}, "required": ["b"]}]},
    ],
    ids=json.dumps,
)
def test_the_parts_of_a_composition_do_not_forbid_one_another(schema: Any) -> None:
    assert fits(schema, {"a": 1, "b": 2}) and fits(adapted(schema), {"a": 1, "b": 2})


def test_objects_put_together_are_closed_as_one() -> None:
    for schema in ({"allOf": [A, B]}, {**A, "allOf": [B]}, {"$defs": {"A": A}, "allOf": [{"$ref": "#/$defs/A"}, B]}):
        assert not fits(adapted(schema), {"a": 1, "b": 2, "other": 3})


def test_the_schema_that_was_given_is_not_changed() -> None:
    schema = {"allOf": [A, B], "uniqueItems": True, "properties": {"f": {"format": "path", "propertyNames": {}}}}
    before = json.dumps(schema)
    adapted(schema)
    assert json.dumps(schema) == before


@pytest.mark.parametrize(
    ("rule", "taken", "refused"),
    [
        ({"type": "string"}, ["x", ""], []),
        ({"enum": ["x", "y"]}, ["x", "y"], ["z"]),
        ({"const": "x"}, ["x"], ["y"]),
        ({"anyOf": [{"const": "x"}, {"const": "y"}]}, ["x", "y"], ["z"]),
        ({"$ref": "#/$defs/Names"}, ["x"], ["y"]),
        ({"pattern": "^[a-z]+$"}, ["abc"], ["A", ""]),
        ({"minLength": 2, "maxLength": 3}, ["ab", "a\nb"], ["a", "abcd"]),
        ({"format": "ipvanyaddress"}, ["anything"], []),
        (False, [], ["x"]),
    ],
)
def test_names_of_properties(rule: Any, taken: list[str], refused: list[str]) -> None:
    whole = {
        "type": "object",
        "propertyNames": rule,
        "additionalProperties": INTEGER,
        "$defs": {"Names": {"const": "x"}},
    }
    made = adapted(whole)
    assert "propertyNames" not in made and fits(made, {})
    for name in taken:
        assert fits(made, {name: 1}) and not fits(made, {name: "no"})
    assert not any(fits(made, {name: 1}) for name in refused)


@pytest.mark.parametrize("count", range(1, MAX_UNIQUE + 1))
def test_items_of_a_small_set_are_unique_in_every_order(count: int) -> None:
    values = [1, True, "1", None][:count]
    schema = {"type": "array", "uniqueItems": True, "items": {"enum": values}, "minItems": 1}
    made = adapted(schema)
    for length in range(4):
        for items in map(list, itertools.product(values, repeat=length)):
            assert fits(made, items) == fits(schema, items), items


def test_items_of_a_larger_set_are_at_most_as_many_as_its_values() -> None:
    made = adapted({"type": "array", "uniqueItems": True, "items": {"enum": list(range(9))}})
    assert "uniqueItems" not in made and made["maxItems"] == 9
    assert adapted({"type": "array", "uniqueItems": True, "items": INTEGER}) == {"type": "array", "items": HELD}


def test_a_format_that_is_not_known_is_an_annotation() -> None:
    assert adapted({"type": "string", "format": "path"}) == {"type": "string"}
    assert adapted({"type": "string", "format": "uuid"}) == {"type": "string", "format": "uuid"}
    assert adapted({"properties": {"format": INTEGER}})["properties"] == {"format": HELD}
    assert adapted({"enum": [{"format": "path"}]}) == {"enum": [{"format": "path"}]}
    assert adapted({"default": {"properties": {}}}) == {"default": {"properties": {}}}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"properties": {"a": {"not": INTEGER}}}, r"'not' at \$\.properties\.a"),
        ({"items": {"if": {}}}, r"'if' at \$\.items"),
        ({"anyOf": [{"pattern": "a(?!b)"}]}, r"pattern at \$\.anyOf\.0 uses look-around"),
        ({**A, "propertyNames": {"pattern": "^a"}}, "'propertyNames' at .* enumerated names alone"),
        ({"propertyNames": {"pattern": "^a", "minLength": 2}}, "'propertyNames' at"),
        (
            {"propertyNames": {"enum": [f"{i}" for i in range(4000)]}, "additionalProperties": {"enum": ["x" * 999]}},
            "size",
        ),
        (
            {
                "properties": {"b": {"$ref": "#/additionalProperties"}},
                "propertyNames": {"enum": ["b"]},
                "additionalProperties": INTEGER,
            },
            "ref points into",
        ),
    ],
)
def test_what_cannot_be_held_is_refused_with_its_place(schema: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        adapted(schema)
    assert caught.value.param == "grammar" and "compile" not in str(caught.value)


def test_the_compilers_words_become_the_users() -> None:
    told = in_users_terms('at 1(8): failed to compile JSON schema: Unimplemented keys: ["x"]\n1 | start: %json\n^')
    assert told == 'the keywords "x" are not supported.'
    assert in_users_terms("something new") == "something new"


SCHEMAS = st.recursive(
    st.sampled_from([INTEGER, {"type": "boolean"}, {"enum": [1, "x"]}, {"$ref": "#/$defs/d"}, {}]),
    lambda inner: st.one_of(
        st.builds(
            lambda properties, required, more: {"properties": properties, "required": required, **more},
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            st.lists(st.sampled_from("abc"), max_size=1),
            st.sampled_from(
                [{}, {"type": "object"}, {"additionalProperties": True}, {"propertyNames": {"enum": ["a", "b"]}}]
            ),
        ),
        st.builds(
            lambda word, parts: {word: parts},
            st.sampled_from(["anyOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(lambda items: {"type": "array", "items": items, "uniqueItems": True}, inner),
    ),
    max_leaves=8,
)
VALUES = st.recursive(
    st.sampled_from([1, True, "x", None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=6,
)


def test_a_name_that_two_parts_require_is_required_once() -> None:
    assert adapted({"allOf": [A, {"type": "object", "properties": {}, "required": ["a"]}]})["required"] == ["a"]


@settings(max_examples=examples(400), deadline=None)
@given(schema=SCHEMAS, definition=SCHEMAS, value=VALUES)
def test_whatever_fits_the_adapted_schema_fits_the_one_that_was_given(schema: Any, definition: Any, value: Any) -> None:
    """The stated exception is items that repeat."""
    if "$ref" in json.dumps(definition):
        return
    whole = {**schema, "$defs": {"d": definition}}
    if fits(adapted(whole), value):
        plain = json.loads(json.dumps(whole).replace('"uniqueItems": true', '"uniqueItems": false'))
        assert fits(plain, value)


def nested(kind: str, depth: int) -> Any:
    """A schema whose every level is written out many times."""
    inner: Any = {"type": "string"}
    few = {f"p{place}": {"type": "string"} for place in range(1, 6)}
    for _ in range(depth):
        inner = {
            "counts": {"type": "object", "properties": {"p0": inner, **few}, "minProperties": 1},
            "contains": {"type": "array", "contains": inner, "minContains": 64},
            "names": {"type": "object", "propertyNames": {"enum": list("abcdefghij")}, "additionalProperties": inner},
        }[kind]
    return inner


@pytest.mark.parametrize("kind", ["counts", "contains", "names"])
def test_a_small_schema_that_would_become_a_huge_one_is_refused(kind: str) -> None:
    assert adapted(nested(kind, 2))
    with pytest.raises(InvalidRequest, match="more than 10,000 parts|too many names"):
        adapted(nested(kind, 16))
