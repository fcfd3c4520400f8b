"""Every format over a socket: the APIs of chat, Responses, Messages and Ollama give one message, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.agents.script import LoopEngine
from tests.serve.fakes import MODEL, PlainTemplate, fake_parts
from tests.serve.harness import Live, serving
from tests.text.talk.reading import TOOLS
from twostroke.text.talk.catalog import EXAMPLES, FORMATS
from twostroke.text.talk.format import Example

Message = tuple[str, str, list[tuple[str, Any]]]
"""The content, the thought and the calls."""
USER: Any = [{"role": "user", "content": "hi"}]
OFFERED: Any = [{"type": "function", "function": {"name": name, "parameters": it}} for name, it in TOOLS.items()]
FLAT: Any = [{"type": "function", "name": name, "parameters": schema} for name, schema in TOOLS.items()]
CLAUDES: Any = [{"name": name, "input_schema": schema} for name, schema in TOOLS.items()]
CASES = [
    pytest.param(name, example, id=f"{name}-{place}")
    for name, examples in EXAMPLES.items()
    for place, example in enumerate(examples)
    if len(example.raw) < 500
]


def asked_for(example: Example) -> Message:
    return example.content, example.thought, [(call[0], json.loads(call[1])) for call in example.calls]


@contextmanager
def replaying(name: str, example: Example) -> Iterator[Live]:
    """A server whose engine writes the example, after a prompt that ends as the example's does."""

    class Ending(PlainTemplate):
        def render(self, messages: Sequence[Mapping[str, Any]], **given: Any) -> str:
            return super().render(messages, **given) + example.prompt

    with serving(fake_parts(LoopEngine([example.raw]), format=FORMATS[name], template=Ending())) as live:
        yield live


def chat(live: Live, stream: bool) -> Message:
    with OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0) as client:
        if stream:
            with client.chat.completions.stream(model=MODEL, messages=USER, tools=OFFERED) as events:
                made: Any = events.get_final_completion().choices[0]
        else:
            made = client.chat.completions.create(model=MODEL, messages=USER, tools=OFFERED).choices[0]
    said, calls = made.message, made.message.tool_calls or []
    assert made.finish_reason == ("tool_calls" if calls else "stop")
    assert len({call.id for call in calls}) == len(calls)
    thought = getattr(said, "reasoning_content", None) or ""
    return said.content or "", thought, [(c.function.name, json.loads(c.function.arguments)) for c in calls]


def responses(live: Live, stream: bool) -> Message:
    with OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0) as client:
        if stream:
            with client.responses.stream(model=MODEL, input="hi", tools=FLAT) as events:
                made: Any = events.get_final_response()
        else:
            made = client.responses.create(model=MODEL, input="hi", tools=FLAT)
    calls = [item for item in made.output if item.type == "function_call"]
    thoughts = [part.text for item in made.output if item.type == "reasoning" for part in item.content or []]
    return made.output_text, "".join(thoughts), [(call.name, json.loads(call.arguments)) for call in calls]


def messages(live: Live, stream: bool) -> Message:
    asked: Any = {"model": MODEL, "max_tokens": 600, "messages": USER, "tools": CLAUDES}
    with Anthropic(base_url=live.url, api_key="none", max_retries=0) as client:
        if stream:
            with client.messages.stream(**asked) as events:
                made: Any = events.get_final_message()
        else:
            made = client.messages.create(**asked)
    blocks = made.content
    said = ["".join(getattr(block, key) for block in blocks if block.type == key) for key in ("text", "thinking")]
    calls = [(block.name, block.input) for block in blocks if block.type == "tool_use"]
    assert made.stop_reason == ("tool_use" if calls else "end_turn")
    return said[0], said[1], calls


def ollama(live: Live, stream: bool) -> Message:
    reply = live.post("/api/chat", {"model": MODEL, "messages": USER, "tools": OFFERED, "stream": stream})
    assert reply.status == 200, reply.body
    said = [json.loads(line)["message"] for line in reply.body.decode().splitlines()]
    content, thought = ("".join(each.get(key) or "" for each in said) for key in ("content", "thinking"))
    functions = [call["function"] for each in said for call in each.get("tool_calls") or ()]
    return content, thought, [(each["name"], each["arguments"]) for each in functions]


@pytest.mark.parametrize(("name", "example"), CASES)
def test_each_shape_gives_the_message(name: str, example: Example) -> None:
    with replaying(name, example) as live:
        for shape in (chat, responses, messages, ollama):
            for stream in (False, True):
                assert shape(live, stream) == asked_for(example), (shape.__name__, stream)


def test_an_id_that_the_model_wrote_is_the_clients() -> None:
    with replaying("kimi", EXAMPLES["kimi"][0]) as live:
        calls = live.chat(tools=OFFERED).json["choices"][0]["message"]["tool_calls"]
        assert calls[0]["id"] == "functions.bell:3"


def test_an_id_counts_the_calls_of_the_conversation() -> None:
    example = Example("<|tool_calls_section_begin|><|tool_call_begin|>bell<|tool_call_argument_begin|>{}")
    call = {"id": "x", "type": "function", "function": {"name": "bell", "arguments": "{}"}}
    before = [*USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "x", "content": "1"}]
    with replaying("kimi", example) as live:
        calls = live.chat(tools=OFFERED, messages=before).json["choices"][0]["message"]["tool_calls"]
        assert calls[0]["id"] == "functions.bell:1"


IDS = "[TOOL_CALLS]bell[CALL_ID]aaaaaaaaa[ARGS]{}[TOOL_CALLS]bell[CALL_ID]aaaaaaaaa[ARGS]{}"


def test_an_id_that_the_model_writes_twice_is_replaced() -> None:
    """A result must belong to one call. So no other call of the turn or of an earlier one has the same id."""
    with replaying("mistral_ids", Example(IDS)) as live:
        first, second = (call["id"] for call in live.chat(tools=OFFERED).json["choices"][0]["message"]["tool_calls"])
        assert first == "aaaaaaaaa" and second != first and len(second) == 9
        call = {"id": first, "type": "function", "function": {"name": "bell", "arguments": "{}"}}
        before = [*USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": first}]
        again = live.chat(tools=OFFERED, messages=before).json["choices"][0]["message"]["tool_calls"]
        assert len({first, *(call["id"] for call in again)}) == 3


def test_a_counted_id_is_not_given_twice_in_a_history_that_was_cut() -> None:
    example = Example("<|tool_calls_section_begin|><|tool_call_begin|>bell<|tool_call_argument_begin|>{}")
    call = {"id": "functions.bell:1", "type": "function", "function": {"name": "bell", "arguments": "{}"}}
    before = [*USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": call["id"]}]
    with replaying("kimi", example) as live:
        calls = live.chat(tools=OFFERED, messages=before).json["choices"][0]["message"]["tool_calls"]
        assert calls[0]["id"] == "functions.bell:2"


@pytest.mark.parametrize("name", FORMATS)
def test_a_streamed_call_of_responses_begins_empty_and_its_deltas_are_all_of_it(name: str) -> None:
    """Where a name and the first arguments were certain at the same time, these came twice."""
    example = next(each for each in EXAMPLES[name] if each.calls)
    with replaying(name, example) as live:
        said = live.post("/v1/responses", {"model": MODEL, "input": "hi", "tools": FLAT, "stream": True}).body
    events = [json.loads(line[6:]) for line in said.decode().splitlines() if line.startswith("data: {")]
    texts: dict[int, str] = {}
    for event in events:
        if event["type"] == "response.output_item.added" and event["item"]["type"] == "function_call":
            texts[event["output_index"]] = event["item"]["arguments"]
        elif event["type"] == "response.function_call_arguments.delta":
            texts[event["output_index"]] += event["delta"]
    done = [item for item in events[-1]["response"]["output"] if item["type"] == "function_call"]
    assert done and list(texts.values()) == [item["arguments"] for item in done]
