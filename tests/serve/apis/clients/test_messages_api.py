"""The Messages API by the real `anthropic` package: whole, streamed, tools, thinking, counting, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from tests.serve.apis.tools.test_tools import CALL, CITY, THINKING, serve
from tests.serve.fakes import CONTEXT, MODEL, FakeEngine, fake_parts
from tests.serve.harness import Live, serving

USER: Any = [{"role": "user", "content": "hi"}]
TOOLS: Any = [{"name": "weather", "description": "of a city", "input_schema": CITY}]


def client_of(live: Live) -> Anthropic:
    return Anthropic(base_url=live.url, api_key="none", max_retries=0)


@pytest.fixture
def client(live: Live) -> Iterator[Anthropic]:
    with client_of(live) as made:
        yield made


def test_create(client: Anthropic) -> None:
    made = client.messages.create(model=MODEL, max_tokens=50, messages=USER, system="be kind")
    assert made.content[0].type == "text" and made.content[0].text == "hello world"
    assert made.stop_reason == "end_turn" and made.stop_sequence is None and made.role == "assistant"
    assert made.usage.output_tokens == 12 and made.usage.cache_read_input_tokens == 3


def test_the_packages_tool_runner_goes_on_without_a_thread(live: Live, client: Anthropic) -> None:
    """It asks for a thread first. The details of the error are what it looks for."""

    @anthropic.beta_tool
    def ring(times: int) -> str:
        """Ring the bell.

        Args:
            times: how often
        """
        return f"{times} times"

    runner = client.beta.messages.tool_runner(model=MODEL, max_tokens=50, messages=USER, tools=[ring])
    assert runner.until_done().content[0].text == "hello world"  # type: ignore[union-attr]
    asked = {"model": MODEL, "max_tokens": 5, "messages": USER, "thread": {"type": "create"}}
    answer = live.post("/v1/messages", asked)
    assert answer.status == 400
    assert answer.json["error"]["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


def test_input_tokens_leave_out_the_cached_ones(client: Anthropic) -> None:
    made = client.messages.create(model=MODEL, max_tokens=5, messages=USER)
    counted = client.messages.count_tokens(model=MODEL, messages=USER)
    assert made.usage.input_tokens + (made.usage.cache_read_input_tokens or 0) == counted.input_tokens
    more = client.messages.count_tokens(model=MODEL, messages=USER, system="be kind", tools=TOOLS)
    assert more.input_tokens > counted.input_tokens


def test_stream_by_the_packages_own_helper(client: Anthropic) -> None:
    with client.messages.stream(model=MODEL, max_tokens=50, messages=USER) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "hello world" and final.stop_reason == "end_turn"
    assert final.usage.output_tokens == 12 and final.usage.cache_read_input_tokens == 3


def test_the_order_of_events(client: Anthropic) -> None:
    kinds = [event.type for event in client.messages.create(model=MODEL, max_tokens=3, messages=USER, stream=True)]
    assert kinds == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 3,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_calls_and_thinking_as_blocks() -> None:
    with serve(f"<think>hm</think>So.\n{CALL}", THINKING) as live, client_of(live) as client:
        made = client.messages.create(model=MODEL, max_tokens=500, messages=USER, tools=TOOLS)
        assert [block.type for block in made.content] == ["thinking", "text", "tool_use"]
        call: Any = made.content[2]
        assert (call.name, call.input, made.stop_reason) == ("weather", {"city": "Ulm"}, "tool_use")
        with client.messages.stream(model=MODEL, max_tokens=500, messages=USER, tools=TOOLS) as stream:
            parts = [event.partial_json for event in stream if event.type == "input_json"]
            final = stream.get_final_message()
        assert "".join(parts) == '{"city": "Ulm"}'
        assert [block.type for block in final.content] == ["thinking", "text", "tool_use"]
        last: Any = final.content[2]
        assert last.input == {"city": "Ulm"}


def test_a_whole_exchange_with_a_tool(live: Live, client: Anthropic) -> None:
    engine: Any = live.parts.serving.engine
    messages: Any = [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "b"},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Ulm"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sunny"}]},
                {"type": "text", "text": "c"},
            ],
        },
    ]
    client.messages.create(model=MODEL, max_tokens=5, messages=messages, tools=TOOLS)
    lines = bytes(engine.prompts[-1].token_ids).decode().splitlines()
    assert lines == ["tool weather", "user: a", "assistant: b", "tool: sunny", "user: c", "assistant: "]


def test_the_answer_goes_on_from_a_last_message_of_the_assistant(live: Live, client: Anthropic) -> None:
    engine: Any = live.parts.serving.engine
    client.messages.create(model=MODEL, max_tokens=5, messages=[*USER, {"role": "assistant", "content": "The"}])
    assert bytes(engine.prompts[-1].token_ids).decode().endswith("assistant: The")


@pytest.mark.parametrize(
    ("choice", "forced", "single"),
    [
        ({"type": "auto"}, False, False),
        ({"type": "any"}, True, False),
        ({"type": "tool", "name": "weather", "disable_parallel_tool_use": True}, True, True),
    ],
)
def test_tool_choice(live: Live, client: Anthropic, choice: Any, forced: bool, single: bool) -> None:
    engine: Any = live.parts.serving.engine
    client.messages.create(model=MODEL, max_tokens=50, messages=USER, tools=TOOLS, tool_choice=choice)
    grammar = engine.prompts[-1].params.grammar
    assert (grammar is not None) == forced
    assert not forced or ("){0,15}" not in grammar.text) == single


def test_a_stop_sequence_is_named() -> None:

    from twostroke.types.output import Delta
    from twostroke.types.request import FinishReason

    engine = FakeEngine("abc")
    engine.last = Delta("", 0, "", finish_reason=FinishReason.STOP, stop_reason="END", num_output_tokens=4)
    with serving(fake_parts(engine)) as live, client_of(live) as client:
        made = client.messages.create(model=MODEL, max_tokens=50, messages=USER, stop_sequences=["END"])
        assert (made.stop_reason, made.stop_sequence) == ("stop_sequence", "END")
        assert engine.prompts[-1].params.stop == ("END",)


def test_cut_short(client: Anthropic) -> None:
    assert client.messages.create(model=MODEL, max_tokens=3, messages=USER).stop_reason == "max_tokens"


def test_models(client: Anthropic) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).display_name == MODEL


def test_errors_arrive_as_the_packages_classes(client: Anthropic, live: Live) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="other", max_tokens=5, messages=USER)
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(model=MODEL, max_tokens=5, messages=[{"role": "user", "content": "x" * CONTEXT}])
    body: Any = caught.value.body
    assert body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"].startswith("prompt is too long: ")
    reply = live.post("/v1/messages", b"{")
    assert reply.status == 400 and reply.json["type"] == "error"
    assert live.get("/v1/messages").json["type"] == "error"


def test_keys() -> None:
    with serving(fake_parts(api_key="right")) as live:
        with Anthropic(base_url=live.url, api_key="wrong") as client, pytest.raises(anthropic.AuthenticationError):
            client.messages.create(model=MODEL, max_tokens=5, messages=USER)
        with Anthropic(base_url=live.url, api_key="right") as client:
            assert client.messages.create(model=MODEL, max_tokens=5, messages=USER).content


def test_a_fault_within_a_stream_raises_in_the_client() -> None:
    engine = FakeEngine()
    engine.error, engine.error_after = RuntimeError("secret"), 4
    with serving(fake_parts(engine)) as live, client_of(live) as client:
        with pytest.raises(anthropic.APIStatusError) as caught:
            list(client.messages.create(model=MODEL, max_tokens=50, messages=USER, stream=True))
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 0},
        {"messages": []},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b "}]},
        {"tools": [{"name": "x", "type": "bash_20250124"}], "tool_choice": {"type": "tool", "name": "x"}},
        {"tool_choice": {"type": "some"}},
        {"output_config": {"format": {"type": "xml"}}},
    ],
)
def test_refused(live: Live, fields: dict[str, Any]) -> None:
    reply = live.post("/v1/messages", {"model": MODEL, "max_tokens": 5, "messages": USER, **fields})
    assert reply.status == 400
    assert reply.json["error"]["type"] == "invalid_request_error" and reply.json["error"]["message"]


def test_a_schema_for_the_answer(live: Live) -> None:
    config = {"format": {"type": "json_schema", "schema": CITY}}
    body = {"model": MODEL, "max_tokens": 5, "messages": USER, "output_config": config}
    assert live.post("/v1/messages", body).status == 200
    engine: Any = live.parts.serving.engine
    assert engine.prompts[-1].params.grammar.kind == "json_schema"
