"""Responses' `truncation: auto`: the earliest items are left out, as few as possible."""

from __future__ import annotations

from typing import Any

import pytest
from openai import OpenAI

from tests.serve.apis.tools.test_agents import FLAT_TOOL, ask, prompt, warned
from tests.serve.fakes import CONTEXT, MODEL
from tests.serve.harness import Live
from twostroke.server.api.changed.truncated import MOST_ROOM, room_for, shortened

SIZE = 100
TURNS: list[Any] = [{"role": "user", "content": f"turn {place:02}" + "x" * SIZE} for place in range(20)]


def test_the_earliest_messages_are_left_out(live: Live) -> None:
    reply = ask(live, "responses", input=TURNS, instructions="be kind", truncation="auto")
    said, text = warned(reply), prompt(live)
    assert text.startswith("system: be kind\nuser: turn ") and "turn 19" in text
    kept = text.count("user: ")
    assert f"the {20 - kept} earliest messages were left out" in said and f"turn {20 - kept:02}" in text
    line = len("user: turn 00\n") + SIZE
    most = CONTEXT - room_for(None, CONTEXT)
    assert len(text) <= most < len(text) + line, "as few as possible"
    assert reply.json["truncation"] == "auto"
    assert live.parts.serving.engine.prompts[-1].params.max_tokens is None  # type: ignore[attr-defined]


def test_a_conversation_that_fits_is_not_changed(live: Live) -> None:
    reply = ask(live, "responses", input=TURNS[:3], truncation="auto")
    assert warned(reply) == "" and prompt(live).count("user: ") == 3


@pytest.mark.parametrize("stream", [False, True])
def test_what_does_not_fit_alone_is_refused_as_ever(live: Live, stream: bool) -> None:
    alone = {"role": "user", "content": "x" * CONTEXT}
    reply = ask(live, "responses", input=[*TURNS, alone], truncation="auto", stream=stream)
    assert b"context_length_exceeded" in reply.body
    assert b"context_length_exceeded" in ask(live, "responses", input=TURNS, truncation="disabled").body


def test_a_result_stays_with_its_call() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{}]}
    result = {"role": "tool", "content": "r"}
    messages = [{"role": "system"}, {"role": "user"}, call, result, result, call, result]
    for most in range(1, 8):
        found = shortened(messages, lambda kept, most=most: kept if len(kept) <= most else None)  # type: ignore[misc]
        assert (found is None) == (most < 3)
        if found is not None:
            count, kept = found
            assert kept == [messages[0], *messages[1 + count :]] and kept[1] is call
            assert len(kept) == max(each for each in (3, 6) if each <= most)


def test_the_tokens_of_items_are_counted(live: Live) -> None:
    body = {"model": MODEL, "input": TURNS[:3], "instructions": "be kind", "tools": [FLAT_TOOL]}
    reply = live.post("/v1/responses/input_tokens", body)
    assert ask(live, "responses", **body).status == 200
    assert reply.json == {"object": "response.input_tokens", "input_tokens": len(prompt(live))}
    with OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0) as client:
        assert client.responses.input_tokens.count(model=MODEL, input="hi").input_tokens == len("user: hi\nassistant: ")
    assert live.post("/v1/responses/input_tokens", {**body, "previous_response_id": "resp_1"}).status == 400


def test_room_is_left_for_an_answer() -> None:
    assert [room_for(limit, 1000) for limit in (None, 5, 900)] == [1000 // MOST_ROOM, 5, 1000 // MOST_ROOM]
