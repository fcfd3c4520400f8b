"""Ids of calls in a history have the form that the model's format prints."""

from __future__ import annotations

from typing import Any

import pytest

from twostroke.text.history.legal_ids import with_legal_ids
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.ids import CallIds


def call(name: str, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": None, "tool_calls": [call("hours", "call_a"), call("bell", "call_b")]},
    {"role": "tool", "tool_call_id": "call_b", "content": "ding"},
    {"role": "tool", "tool_call_id": "call_a", "content": "nine"},
    {"role": "assistant", "content": "", "tool_calls": [call("hours", "call_a")]},
    {"role": "tool", "tool_call_id": "call_a", "content": "ten"},
    {"role": "tool", "tool_call_id": "of another conversation", "content": "?"},
]


def ids_of(messages: Any) -> list[str]:
    found = []
    for message in messages:
        found += [each["id"] for each in message.get("tool_calls", ())]
        found += [message["tool_call_id"]] if "tool_call_id" in message else []
    return found


def test_kimi_counts_calls_over_the_whole_conversation() -> None:
    made = with_legal_ids(HISTORY, FORMATS["kimi"].ids)
    first, second, third = "functions.hours:0", "functions.bell:1", "functions.hours:2"
    assert ids_of(made) == [first, second, second, first, third, third, "of another conversation"]
    assert ids_of(with_legal_ids(made, FORMATS["kimi"].ids)) == ids_of(made), "legal ids stay"
    assert ids_of(HISTORY)[0] == "call_a", "the request is not changed"


def test_a_strict_form_maps_equal_ids_to_equal_ones() -> None:
    made = ids_of(with_legal_ids(HISTORY, CallIds("", 9, exact=True)))
    assert all(len(each) == 9 and each.isalnum() for each in made[:-1])
    assert made[0] == made[3] == made[4] and made[0] != made[1]


def test_where_any_id_will_do_nothing_changes() -> None:
    assert with_legal_ids(HISTORY, FORMATS["hermes"].ids) is HISTORY


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "tool_calls": "none"},
        {"role": "assistant", "tool_calls": [None, 5, {"id": 3}, {"function": {"name": "f"}}, {"id": "x"}]},
        {"role": "tool", "tool_call_id": ["call_a"]},
        "text",
    ],
)
def test_what_is_no_call_stays_as_it_is(message: Any) -> None:
    assert with_legal_ids([message], FORMATS["kimi"].ids) == [message]
