"""Objects that end early: every beginning gives its complete parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from twostroke.text.talk.cut_json import complete_part


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"city": "Ulm", "days": [1, 2', {"city": "Ulm", "days": [1]}),
        ('{"city": "Ul', {}),
        ('{"city": "a\\"b", "x": {"y": tr', {"city": 'a"b', "x": {}}),
        ('{"a": 12', {}),
        ('{"a": 12 ', {}),
        ('{"a": 12, "b"', {"a": 12}),
        ('{"a": {"b": "c"}', {"a": {"b": "c"}}),
        ("{", {}),
        ("", None),
        ("[1", None),
        ("no", None),
        ("{]", None),
    ],
)
def test_what_is_complete(text: str, part: Any) -> None:
    assert complete_part(text) == part


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def within(part: Any, whole: Any) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and within(value, whole[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(within, part, whole))
    return bool(part == whole and type(part) is type(whole))


@settings(max_examples=examples(150), deadline=None)
@given(value=st.dictionaries(st.text(max_size=4), VALUES, max_size=4))
def test_nothing_is_made_up_wherever_it_breaks_off(value: dict[str, Any]) -> None:
    text = json.dumps(value)
    for place in range(1, len(text) + 1):
        part = complete_part(text[:place])
        assert part is not None and within(part, value)
    assert complete_part(text) == value
