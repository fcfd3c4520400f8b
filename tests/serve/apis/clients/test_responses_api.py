"""The Responses API by the real `openai` package: whole, streamed, tools, reasoning, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.serve.apis.tools.test_tools import CALL, CITY, THINKING, serve
from tests.serve.fakes import MODEL, FakeEngine, fake_parts
from tests.serve.harness import Live, serving

TOOLS: Any = [{"type": "function", "name": "weather", "parameters": CITY, "strict": False}]


@pytest.fixture
def client(live: Live) -> Iterator[OpenAI]:
    with OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def client_of(live: Live) -> OpenAI:
    return OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0)


def test_create(client: OpenAI) -> None:
    made = client.responses.create(model=MODEL, input="hi", instructions="be kind", metadata={"a": "b"})
    assert made.output_text == "hello world" and made.status == "completed"
    assert made.instructions == "be kind" and made.metadata == {"a": "b"} and made.store is False
    assert made.usage and made.usage.output_tokens == 12 and made.usage.input_tokens_details.cached_tokens == 3
    assert made.usage.total_tokens == made.usage.input_tokens + 12


@pytest.mark.parametrize("body", [{}, {"input": None}, {"messages": [{"role": "user", "content": "hi"}]}])
def test_a_request_without_input_is_refused(body: dict[str, Any], live: Live) -> None:
    """A chat request at the wrong path got an answer to an empty message."""
    reply = live.post("/v1/responses", {"model": MODEL, **body})
    assert reply.status == 400 and reply.error["param"] == "input" and "input is missing" in reply.error["message"]


def test_the_prompt_is_that_of_the_same_chat(live: Live, client: OpenAI) -> None:
    engine: Any = live.parts.serving.engine
    items: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    ]
    client.responses.create(model=MODEL, input=items, instructions="s")
    text = bytes(engine.prompts[-1].token_ids).decode()
    assert [line.partition(":")[0] for line in text.splitlines()] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert "sunny" in text


def test_stream_by_the_packages_own_helper(client: OpenAI) -> None:
    with client.responses.stream(model=MODEL, input="hi") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == "hello world" and final.usage and final.usage.output_tokens == 12
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_the_wire(live: Live) -> None:
    """Every event has its name on the `event:` line and in its data, numbered from 0. There is no [DONE]."""
    reply = live.post("/v1/responses", {"model": MODEL, "input": "hi", "stream": True})
    blocks = [block for block in reply.body.decode().split("\n\n") if block]
    assert all(block.startswith("event: response.") for block in blocks) and b"[DONE]" not in reply.body
    import json

    data = [json.loads(block.partition("\ndata: ")[2]) for block in blocks]
    assert [item["sequence_number"] for item in data] == list(range(len(data)))
    assert [item["type"] for item in data] == [block.partition("\n")[0].removeprefix("event: ") for block in blocks]
    whole = live.post("/v1/responses", {"model": MODEL, "input": "hi"}).json
    streamed = data[-1]["response"]
    assert {key for key in whole if whole[key] != streamed[key]} <= {"id", "output", "created_at"}
    assert whole["output"][0]["content"] == streamed["output"][0]["content"]


def test_calls_and_reasoning_as_items() -> None:
    with serve(f"<think>hm</think>So.\n{CALL}", THINKING) as live, client_of(live) as client:
        made = client.responses.create(model=MODEL, input="hi", tools=TOOLS)
        assert [item.type for item in made.output] == ["reasoning", "message", "function_call"]
        call: Any = made.output[2]
        assert (call.name, call.arguments, made.output_text) == ("weather", '{"city": "Ulm"}', "So.")
        with client.responses.stream(model=MODEL, input="hi", tools=TOOLS) as stream:
            deltas = [e.delta for e in stream if e.type == "response.function_call_arguments.delta"]
            final = stream.get_final_response()
        assert "".join(deltas) == '{"city": "Ulm"}'
        assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]


def test_cut_short_is_incomplete(client: OpenAI) -> None:
    made = client.responses.create(model=MODEL, input="hi", max_output_tokens=3)
    assert made.status == "incomplete" and made.output_text == "hel"
    assert made.incomplete_details and made.incomplete_details.reason == "max_output_tokens"
    kinds = [e.type for e in client.responses.create(model=MODEL, input="hi", max_output_tokens=3, stream=True)]
    assert kinds[-1] == "response.incomplete"


def test_an_empty_answer_is_an_empty_message() -> None:
    with serve("") as live, client_of(live) as client:
        made = client.responses.create(model=MODEL, input="hi")
        assert made.output_text == "" and made.output[0].type == "message"
        with client.responses.stream(model=MODEL, input="hi") as stream:
            assert stream.until_done().get_final_response().output_text == ""


def test_logprobs(client: OpenAI) -> None:
    made: Any = client.responses.create(
        model=MODEL, input="hi", include=["message.output_text.logprobs"], top_logprobs=2
    )
    logprobs = made.output[0].content[0].logprobs
    assert [item.token for item in logprobs[:2]] == ["h", "e"] and len(logprobs[0].top_logprobs) == 2


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"truncation": "middle"}, "truncation"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"temperature": 3}, "temperature"),
    ],
)
def test_refused(live: Live, fields: dict[str, Any], param: str) -> None:
    reply = live.post("/v1/responses", {"model": MODEL, "input": "hi", **fields})
    assert reply.status == 400
    assert reply.error["param"] == param


def test_a_fault_within_a_stream_is_a_failed_response() -> None:
    engine = FakeEngine()
    engine.error, engine.error_after = RuntimeError("secret"), 4
    with serving(fake_parts(engine)) as live, client_of(live) as client:
        *_, last = client.responses.create(model=MODEL, input="hi", stream=True)
        assert last.type == "response.failed" and last.response.error
        assert "secret" not in last.response.error.message
        with pytest.raises(openai.InternalServerError):
            client.responses.create(model=MODEL, input="hi")
