"""Numbers of a form end, and fit a double or 64 bits. Bounds of any size are taken."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.forms.walks import Walker
from tests.text.kinds import make
from tests.tiers import examples
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.grammar.schema import adapted
from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import Grammar

LARGEST = 2**63 - 1024  # the largest double below 2**63
BEYOND = str(2**63)
DOUBLE_MAX = 1.7976931348623157e308


@pytest.fixture(scope="module")
def walker() -> Iterator[Walker]:
    tokenizer = make("byte_level")
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.end_token_ids)
    yield Walker(compiler, tokenizer)
    compiler.close()


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        (
            {"type": "number"},
            "0 -0 0.1 3.14159265358979323 6.02e23 5E+3 1e05 1e288 1.5e307 -1e-300 "
            "9223372036854775807 -9223372036854775808",
            "00 .5 5. 1e308 1e999 -1e400 9223372036854775808 12345678901234567890 3.141592653589793238",
        ),
        (
            {"type": "integer"},
            f"0 -5 1111111111111111111 {LARGEST} -{LARGEST}",
            "1e3 1.0 9223372036854775808 -9223372036854775809 11111111111111111111",
        ),
        ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, f"7 {LARGEST} -{LARGEST}", BEYOND),
        ({"type": "integer", "minimum": -(2**63)}, f"7 {LARGEST} -{LARGEST}", BEYOND),
        ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 2**63}, f"1 {LARGEST}", f"0 -1 {BEYOND}"),
        ({"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, f"0 {LARGEST}", "-1 18446744073709551615"),
        ({"type": "integer", "minimum": 2**53 + 1, "maximum": 2**53 + 4}, "9007199254740994", "9007199254740993 1"),
        ({"type": "integer", "minimum": 0.5, "exclusiveMaximum": 3}, "1 2", "0 3"),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": 2}, "1 2", "0 3"),
        ({"type": "integer", "multipleOf": 1000003, "minimum": 0, "maximum": 3 * 10**6}, "0 1000003", "1 3000009"),
        ({"type": "number", "minimum": -DOUBLE_MAX, "maximum": DOUBLE_MAX}, "0.5 1e300 -2", "1e309"),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": DOUBLE_MAX}, "0.5 12345678", "0 -1"),
        ({"type": "number", "minimum": 0, "maximum": 1e100}, "0 0.5 1000000000000000", "-1"),
        ({"type": "number", "maximum": 1e20}, "-7.5 99", "2e20"),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, "0.1", "0"),
        ({"type": "number", "minimum": 0.1, "exclusiveMaximum": 0.3}, "0.1 0.25", "0.3 0.05"),
        ({"type": "number", "multipleOf": 0.01}, "1.25 7", "1.255"),
        ({"enum": [1e300, 2.5, DOUBLE_MAX]}, "2.5", "2"),
        ({"type": ["number", "null"], "maximum": 5}, "null 4.5", "6"),
    ],
    ids=str,
)
def test_which_numbers_fit(schema: dict[str, Any], taken: str, refused: str, walker: Walker) -> None:
    grammar = Grammar.json_schema(schema)
    for text in taken.split():
        assert walker.takes(grammar, text), text
        assert math.isfinite(json.loads(text) or 0)
    for text in refused.split():
        assert not walker.takes(grammar, text), text


@pytest.mark.parametrize("schema", [True, {}, {"type": "object"}, {"type": "array"}, {"type": ["array", "string"]}])
def test_numbers_inside_of_anything_end_too(schema: Any, walker: Walker) -> None:
    array = not isinstance(schema, dict) or schema.get("type") != "object"
    for text, fits in (("1.5", True), ("1e999", False), ("9223372036854775808", False), ("-9223372036854775808", True)):
        whole = f"[{text}, null]" if array else f'{{"a": [{text}, {{"b":""}}]}}'
        assert walker.takes(Grammar.json_schema(schema), whole) is fits, text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 2**63},
        {"type": "integer", "exclusiveMinimum": 2**63 - 1},
        {"type": "integer", "maximum": -(2**63) - 1},
        {"type": "integer", "minimum": 2**63 - 1},
        {"type": "integer", "minimum": 2**53 + 1, "maximum": 2**53 + 1},
        {"const": 2**53 + 1},
        {"enum": [{"a": [2**63 - 1]}]},
        {"type": "number", "minimum": 1e16},
        {"type": "number", "maximum": -1e300},
    ],
    ids=str,
)
def test_bounds_that_leave_nothing_to_hold_are_refused_by_name(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"(minimum|Minimum|maximum|[0-9]{9}) at \$\.items"):
        adapted({"type": "array", "items": schema})


WHITE = ['{"a":[1,2]}', '{"a": [1, 2]}', '{\n  "a": [\n    1,\n    2\n  ]\n}', '{ "a" : [ 1 , 2 ] }']
NOT_WHITE = ['{"a":  1}', '{\n\n"a":1}', '{\t"a":1}', '{"a":1 \n}', '{\n         "a":1}', ' {"a":1}', '{"a":1} ']


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "object", "properties": {"a": {}}, "required": ["a"]}])
def test_white_space_is_a_space_or_a_line_end_with_an_indentation(schema: dict[str, Any], walker: Walker) -> None:
    assert all(walker.takes(Grammar.json_schema(schema), text) for text in WHITE)
    assert not any(walker.takes(Grammar.json_schema(schema), text) for text in NOT_WHITE)


BOUND = st.one_of(
    st.integers(-(2**64), 2**64),
    st.sampled_from([0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 10**15, DOUBLE_MAX, -DOUBLE_MAX, 1e-9]),
    st.floats(-1e18, 1e18, allow_nan=False),
)
NUMBERS = st.builds(
    lambda kind, bounds: {"type": kind, **bounds},
    st.sampled_from(["integer", "number"]),
    st.dictionaries(
        st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]), BOUND, max_size=3
    ),
)


@settings(max_examples=examples(150), deadline=None)
@given(schema=NUMBERS, seed=st.integers(0, 2**20))
def test_whatever_is_written_fits_the_bounds(schema: dict[str, Any], seed: int, walker: Walker) -> None:
    try:
        text = walker.written(Grammar.json_schema(schema), seed)
    except InvalidRequest as error:
        assert "500" not in str(error) and error.param == "grammar"
        return
    value = json.loads(text)
    jsonschema_rs.validate(schema, value)
    assert math.isfinite(value) and (schema["type"] == "number" or -(2**63) <= value < 2**63)
