"""max_tokens cuts a forced call at any place. Every client reads the message, and it contains no markup."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.serve.apis.tools.test_tools import CITY, serve
from tests.serve.fakes import MODEL
from tests.serve.harness import Live

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm", "days": 5}}\n</tool_call>'
NAMED = CALL.index('", "arguments"') + 1
USER: Any = [{"role": "user", "content": "weather?"}]
CHAT_TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": CITY}}]
CUTS = [1, 5, 11, 14, 20, NAMED, NAMED + 12, NAMED + 18, NAMED + 25, NAMED + 30, len(CALL) - 14]


@pytest.fixture(scope="module")
def calling() -> Iterator[Live]:
    with serve(CALL) as live:
        yield live


@pytest.fixture
def client(calling: Live) -> Iterator[OpenAI]:
    with OpenAI(base_url=calling.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def arguments_until(cut: int) -> str:
    return CALL[CALL.index('{"city"') : CALL.index("}}") + 1][: max(0, cut - CALL.index('{"city"'))]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_chat(cut: int, choice: Any, client: OpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": USER, "tools": CHAT_TOOLS, "tool_choice": choice, "max_tokens": cut}
    whole = client.chat.completions.create(**asked).choices[0]
    assert whole.finish_reason == "length"
    calls: Any = whole.message.tool_calls or []
    assert [(call.function.name, call.function.arguments) for call in calls] == (
        [("weather", arguments_until(cut))] if cut >= NAMED else []
    )
    assert whole.message.content == (None if calls else "")
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == ""
    grown = [call.function.arguments or "" for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert "".join(grown) == arguments_until(cut) and chunks[-1].choices[0].finish_reason == "length"


@pytest.mark.parametrize("cut", CUTS)
def test_responses(cut: int, client: OpenAI) -> None:
    tools: Any = [{"type": "function", "name": "weather", "parameters": CITY}]
    made = client.responses.create(
        model=MODEL, input="weather?", tools=tools, tool_choice="required", max_output_tokens=cut
    )
    assert made.status == "incomplete" and made.output_text == ""
    (item,) = made.output
    assert item.type == ("function_call" if cut >= NAMED else "message") and item.status == "incomplete"
    if item.type == "function_call":
        assert item.arguments == arguments_until(cut)


@pytest.mark.parametrize("cut", CUTS)
def test_messages(cut: int, calling: Live) -> None:
    asked: Any = {"model": MODEL, "messages": USER, "max_tokens": cut, "tool_choice": {"type": "any"}}
    asked["tools"] = [{"name": "weather", "input_schema": CITY}]
    with Anthropic(base_url=calling.url, api_key="none", max_retries=0) as client:
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
    for made in (whole, streamed):
        assert made.stop_reason == "max_tokens" and [block.type for block in made.content] == ["tool_use"] * (
            cut >= NAMED
        )
    if whole.content:
        block: Any = whole.content[0]
        assert block.input.items() <= {"city": "Ulm", "days": 5}.items()


def test_a_message_has_no_citations_key(calling: Live) -> None:
    """Vercel's client takes null for a wrong value."""
    body = {"model": MODEL, "max_tokens": 5, "messages": USER}
    assert calling.post("/v1/messages", body).json["content"] == [{"type": "text", "text": CALL[:5]}]
    events = calling.call("POST", "/v1/messages", {**body, "stream": True}).body.decode()
    begun = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")]
    assert next(e for e in begun if e["type"] == "content_block_start")["content_block"] == {"type": "text", "text": ""}


def test_an_answer_that_is_asked_for_again_is_a_404(client: OpenAI, calling: Live) -> None:
    made = client.responses.create(model=MODEL, input="hi")
    for again in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError) as caught:
            again(made.id)
        assert caught.value.code == "response_not_found" and caught.value.param == "response_id"
        assert made.id in caught.value.message and "store" in caught.value.message
    with pytest.raises(openai.NotFoundError):
        client.responses.input_items.list(made.id)
    reply = calling.get(f"/v1/responses/{made.id}")
    assert reply.status == 404 and reply.error["type"] == "invalid_request_error"
