"""Qwen3-Coder's calls, with types from schemas: what the model's template writes comes back unchanged, however it is
cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twostroke.text.talk.calling import Tools
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.pieces import CallArguments, CallBegan, Said, joined
from twostroke.text.talk.reader import TurnReader
from twostroke.text.talk.typed_text import as_json, types_of

FORM = FORMATS["qwen3_coder"]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "integer": {"type": "integer"},
        "number": {"type": "number"},
        "boolean": {"type": "boolean"},
        "array": {"type": "array"},
        "object": {"$ref": "#/$defs/Thing"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "any_of_them": {},
    },
    "$defs": {"Thing": {"allOf": [{"type": "object"}]}},
}


def read(text: str, cuts: Sequence[int] = (), schema: Any = SCHEMA) -> Any:
    turn = TurnReader(FORM, Tools({"f": schema}))
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [piece for a, b in zip(places, places[1:], strict=False) for piece in turn.feed(text[a:b])]
    return joined([*pieces, *turn.finish()])


def written(arguments: dict[str, Any]) -> str:
    """A call as the model's own template writes it: texts unchanged, everything else as JSON."""
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    parts = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function=f>\n{parts}</function>\n</tool_call>"


WORDS = st.text(max_size=12) | st.sampled_from(
    ['say "x"\n', "\n\n", "</param", "<function=f>", "5", "true", "{", " a "]
)
TEXTS = WORDS.filter(lambda text: "</parameter>" not in text)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\</>\n', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "text": TEXTS,
        "any_of_them": TEXTS,
        "integer": st.integers(),
        "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
        "boolean": st.booleans(),
        "array": st.lists(JSON_VALUES, max_size=3),
        "object": st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=3),
        "maybe": st.none() | st.integers(),
    },
)


@given(st.lists(ARGUMENTS, min_size=1, max_size=3), st.lists(st.integers(0, 900), max_size=30))
def test_what_the_template_writes_comes_back(calls: list[dict[str, Any]], cuts: list[int]) -> None:
    text = "\n".join(map(written, calls))
    if any("</parameter>" in json.dumps(call) for call in calls):
        return  # the form has no escapes, so no reader could know
    made = read(text, cuts)
    assert made == read(text)
    assert [json.loads(piece.text) for piece in made if isinstance(piece, CallArguments)] == calls
    assert [piece.index for piece in made if isinstance(piece, CallBegan)] == list(range(len(calls)))
    assert not any(isinstance(piece, Said) for piece in made)


def test_a_text_streams_and_a_number_comes_when_it_is_whole() -> None:
    turn = TurnReader(FORM, Tools({"f": SCHEMA}))
    turn.feed("<tool_call>\n<function=f>\n<parameter=text>\n")
    assert joined(turn.feed("ab\n")) == [CallArguments(0, "ab")]
    assert joined(turn.feed("c</para")) == [CallArguments(0, "\\nc")]
    assert joined(turn.feed("meter><parameter=number>12")) == [CallArguments(0, '", "number": ')]
    assert joined(turn.feed("34</parameter></function>")) == [CallArguments(0, "1234}")]


@pytest.mark.parametrize(
    ("text", "types", "json_text"),
    [
        ("5", ["integer"], "5"),
        (" 5 ", ["number"], "5"),
        ("5.5", ["integer"], '"5.5"'),
        ("5.0", ["integer"], "5.0"),
        ("True", ["boolean"], "true"),
        ("True", ["string", "integer"], '"True"'),
        ("None", ["null", "integer"], "null"),
        ("null", ["string"], '"null"'),
        ('"5"', ["integer"], '"\\"5\\""'),
        ('"a"', ["string", "null"], '"\\"a\\""'),
        ("a b", ["array", "string"], '"a b"'),
        ("[1", ["array"], '"[1"'),
        ("NaN", ["number"], '"NaN"'),
        ("[" * 100_000, ["array"], json.dumps("[" * 100_000)),
        ("9" * 9_000, ["integer"], json.dumps("9" * 9_000)),
    ],
)
def test_bare_texts_as_json(text: str, types: list[str], json_text: str) -> None:
    assert as_json(text, frozenset(types)) == json_text


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        (None, {"string"}),
        ({"properties": 5}, {"string"}),
        ({"properties": {"k": {"type": ["integer", "null"]}}}, {"integer", "null"}),
        ({"properties": {"k": {"enum": [1, "a", None]}}}, {"integer", "string", "null"}),
        ({"properties": {"k": {"const": True}}}, {"boolean"}),
        ({"properties": {"k": {"oneOf": [{"type": "array"}, {"type": "string"}]}}}, {"array", "string"}),
        ({"properties": {"k": {"$ref": "#/$defs/a~1b"}}, "$defs": {"a/b": {"type": "number"}}}, {"number"}),
        ({"properties": {"k": {"$ref": "#/properties/k"}}}, {"string"}),
        ({"properties": {"k": {"$ref": "http://elsewhere"}}}, {"string"}),
    ],
)
def test_types_of_schemas(schema: Any, types: set[str]) -> None:
    assert types_of(schema, "k") == types


def test_a_schema_that_refers_to_itself_in_many_ways_is_read_in_part() -> None:
    knot = {"anyOf": [{"$ref": "#/properties/k"}] * 1_000}
    assert types_of({"properties": {"k": {**knot, "type": "integer"}}}, "k") == {"integer"}


@given(
    JSON_VALUES, TEXTS, st.sets(st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"]))
)
def test_no_schema_and_no_text_make_anything_but_json(schema: Any, text: str, types: set[str]) -> None:
    assert types_of({"properties": {"k": schema}}, "k")
    json.loads(as_json(text, frozenset(types)))
