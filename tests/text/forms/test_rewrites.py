"""Keywords that the compiler lacks: each answer of the new form fits the old one, and constraints that are not enforced
are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.forms.walks import Walker
from tests.text.kinds import make
from tests.tiers import examples
from twostroke.text.grammar.check import checked, not_held
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.grammar.rewrites import rewritten
from twostroke.text.grammar.unheld import HELD_CHARACTERS
from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import Grammar

INT: dict[str, Any] = {"type": "integer"}
B: dict[str, Any] = {"type": "boolean"}
S: dict[str, Any] = {"type": "string"}


@pytest.fixture(scope="module")
def walker() -> Iterator[Walker]:
    tokenizer = make("byte_level")
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.end_token_ids)
    yield Walker(compiler, tokenizer)
    compiler.close()


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def optional(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        ({"type": "string", "nullable": True}, ['"a"', "null"], ["1"]),
        ({"type": "string", "enum": ["a"], "nullable": True}, ['"a"', "null"], ['"b"']),
        ({"anyOf": [INT, B], "nullable": True}, ["1", "true", "null"], ['"b"']),
        ({"type": "string", "nullable": False}, ['"a"'], ["null"]),
        ({"not": {"type": "string"}}, ["1", "[]", "null"], ['"a"']),
        ({"type": ["string", "null"], "not": {"type": "null"}}, ['"a"'], ["null"]),
        (optional(a=INT, b={"not": {}}), ["{}", '{"a": 1}'], ['{"b": 1}']),
        ({**optional(a=INT, b=INT), "dependentRequired": {"a": ["b"]}}, ['{"a": 1, "b": 2}', '{"b": 2}'], ['{"a": 1}']),
        ({"type": "array", "contains": INT}, ["[1]", '[1, "x"]'], ["[]", '["x"]']),
        ({"type": "array", "items": S, "contains": {"const": "x"}}, ['["x"]', '["x", "y"]'], ["[]", '["x", 1]']),
        ({"type": "array", "items": INT, "contains": INT, "minContains": 2}, ["[1, 2]"], ["[1]"]),
        ({"type": "array", "items": INT, "contains": B, "minContains": 0}, ["[]", "[1]"], ["[true]"]),
        ({**optional(a=INT, b=INT, c=INT), "minProperties": 2}, ['{"a": 1, "c": 2}'], ["{}", '{"a": 1}']),
        ({**optional(a=INT, b=INT, c=INT), "maxProperties": 1}, ["{}", '{"b": 1}'], ['{"a": 1, "b": 1}']),
        ({**optional(a=INT, b=INT), "required": ["b"], "maxProperties": 1}, ['{"b": 1}'], ["{}", '{"a": 1, "b": 1}']),
        ({"type": "object", "patternProperties": {"^x": INT, "y$": INT}}, ['{"x": 1}', '{"ay": 1}'], ['{"z": 1}']),
        (
            {"type": "object", "properties": {"a": B}, "required": ["a"], "patternProperties": {"^x": INT}},
            ['{"a": true, "x1": 2}', '{"a": true}'],
            ['{"x1": 2}', '{"a": true, "b": 2}', '{"a": true, "x": ""}'],
        ),
        ({"type": "string", "maxLength": 2.0, "minLength": 1.0}, ['"a"', '"ab"'], ['""', '"abc"']),
        ({"type": "array", "items": INT, "maxItems": 2.0}, ["[]", "[1, 2]"], ["[1, 2, 3]"]),
        ({"type": "array", "items": INT, "maxItems": 100000}, ["[]", "[1, 2]"], ['["x"]']),
        ({"type": "array", "items": INT, "maxItems": 10**30}, ["[]", "[1, 2]"], ['["x"]']),
        ({"type": "object", "additionalProperties": INT, "maxProperties": 10**9}, ['{"a": 1}'], ['{"a": ""}']),
        ({"type": "string", "maxLength": 524288}, ['"a"', '""'], ["1"]),
        ({"type": "string", "maxLength": 10**40, "minLength": 1}, ['"a"'], ['""']),
    ],
    ids=str,
)
def test_what_fits(schema: dict[str, Any], taken: list[str], refused: list[str], walker: Walker) -> None:
    grammar = Grammar.json_schema(schema)
    assert all(walker.takes(grammar, text) for text in taken), [t for t in taken if not walker.takes(grammar, t)]
    assert not any(walker.takes(grammar, text) for text in refused)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string", "maxLength": HELD_CHARACTERS}, []),
        ({"type": "array", "items": INT, "maxItems": 10**9, "minItems": 10**5}, []),
        (closed(v={"type": "string", "maxLength": 524288}), [r"maxLength 524288 at $.properties.v"]),
        (closed(v={"type": "string", "minLength": 60000}), [r"minLength 60000 at $.properties.v"]),
        (closed(a={"maxLength": 3000, "type": "string"}, b={"maxLength": 3001, "type": "string"}), ["maxLength 3001"]),
        (closed(**{f"p{i}": {"type": "string", "maxLength": 4000} for i in range(9)}), []),
        ({"type": "integer", "multipleOf": 1000003}, ["multipleOf 1000003 at $"]),
        ({"type": "integer", "multipleOf": 10**12}, ["multipleOf 1000000000000 at $"]),
        ({**optional(**{f"p{i}": INT for i in range(9)}), "minProperties": 3}, ["minProperties 3 at $"]),
        ({**optional(a=INT), "additionalProperties": INT, "maxProperties": 3}, ["maxProperties 3"]),
        (True, []),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_not_held_is_said_in_words(schema: Any, words: list[str], walker: Walker) -> None:
    grammar = Grammar.json_schema(schema)
    found = not_held(grammar)
    assert len(found) == len(words) and all(word in each for word, each in zip(words, found, strict=True)), found
    assert walker.compiler.compile(grammar).bits()


def test_other_kinds_of_grammar_hold_all_that_they_say() -> None:
    assert not_held(Grammar.regex("a{1,9}")) == not_held(Grammar.json_object()) == ()


@pytest.mark.parametrize("text", ['{"minimum": NaN, "type": "number"}', '{"const": 1e999}', '{"enum": [Infinity]}'])
def test_numbers_that_no_json_holds_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not finite"):
        checked(Grammar.json_schema(text))


def test_what_a_reference_leads_to_stays_in_its_place(walker: Walker) -> None:
    schema = {
        **optional(a=INT, b={"$ref": "#/properties/a"}, c=INT),
        "minProperties": 2,
    }
    assert rewritten(schema) != schema
    assert walker.takes(Grammar.json_schema(schema), '{"a": 1, "b": 2}')
    assert not_held(Grammar.json_schema(schema))


def test_a_string_longer_than_a_bound_that_is_held_is_not_written(walker: Walker) -> None:
    grammar = Grammar.json_schema({"type": "string", "maxLength": 900})
    assert walker.takes(grammar, '"' + "é" * 900 + '"')
    assert not walker.takes(grammar, '"' + "é" * 901 + '"')


LEAVES = st.sampled_from([INT, B, {"type": "null"}, {"enum": ["x", 1]}, {"type": "integer", "nullable": False}])
SCHEMAS = st.one_of(
    st.builds(
        lambda names, required, more: {**optional(**dict.fromkeys(names, INT)), "required": required, **more},
        st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True),
        st.lists(st.sampled_from("ab"), max_size=1),
        st.fixed_dictionaries(
            {}, optional={"minProperties": st.integers(0, 3), "maxProperties": st.integers(1, 4)}
        ),
    ),
    st.builds(
        lambda names, lists: {**optional(**dict.fromkeys(names, B)), "dependentRequired": lists},
        st.lists(st.sampled_from("abc"), min_size=3, max_size=3, unique=True),
        st.dictionaries(st.sampled_from("abc"), st.lists(st.sampled_from("abc"), max_size=2, unique=True)),
    ),
    st.builds(
        lambda items, inner, least: {"type": "array", "items": items, "contains": inner, "minContains": least},
        st.just(True),
        LEAVES,
        st.integers(0, 3),
    ),
    st.builds(
        lambda kinds: {"not": {"type": kinds}},
        st.lists(st.sampled_from(["string", "array", "object", "number"]), min_size=1, unique=True),
    ),
)


@settings(max_examples=examples(120), deadline=None)
@given(schema=SCHEMAS, seed=st.integers(0, 2**20))
def test_whatever_is_written_fits_the_schema_that_was_given(schema: Any, seed: int, walker: Walker) -> None:
    grammar = Grammar.json_schema(schema)
    try:
        text = walker.written(grammar, seed, close=0.5)
    except InvalidRequest as error:
        assert "no value can fit" in str(error)
        return
    if not not_held(grammar):
        jsonschema_rs.validate(schema, json.loads(text))
