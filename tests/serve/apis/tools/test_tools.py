"""Tools and reasoning over chat completions: what the real `openai` package reads from whole and streamed answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.serve.fakes import HERMES, MODEL, FakeEngine, fake_parts
from tests.serve.harness import Live, serving
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.format import CallForm, Format
from twostroke.text.talk.notations.object import ObjectNotation

USER: Any = [{"role": "user", "content": "hi"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": CITY}},
    {"type": "function", "function": {"name": "time"}},
]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'
CALL_2 = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'


THINKING, MISTRAL, CODER = FORMATS["hermes"], FORMATS["mistral_list"], FORMATS["qwen3_coder"]


def serve(answer: str, form: Format = HERMES) -> Any:
    return serving(fake_parts(FakeEngine(answer), format=form))


@pytest.fixture(scope="module")
def calling() -> Iterator[Live]:
    with serve(f"I look.\n{CALL}\n{CALL_2}") as live:
        yield live


@pytest.fixture
def client(calling: Live) -> Iterator[OpenAI]:
    with OpenAI(base_url=calling.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def test_calls_of_a_whole_answer(client: OpenAI) -> None:
    choice = client.chat.completions.create(model=MODEL, messages=USER, tools=TOOLS).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look."
    calls: Any = choice.message.tool_calls
    assert [(c.function.name, json.loads(c.function.arguments)) for c in calls] == [
        ("weather", {"city": "Ulm"}),
        ("time", {}),
    ]
    assert len({c.id for c in calls}) == 2 and all(c.id.startswith("call_") and c.type == "function" for c in calls)


def test_streamed_calls_by_the_packages_own_helper(client: OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=USER, tools=TOOLS) as stream:
        arguments = [e.arguments_delta for e in stream if e.type == "tool_calls.function.arguments.delta"]
        final = stream.get_final_completion().choices[0]
    assert "".join(arguments) == '{"city": "Ulm"}{}' and len(arguments) > 5
    assert final.finish_reason == "tool_calls" and final.message.content == "I look."
    calls: Any = final.message.tool_calls
    assert [(c.function.name, c.function.arguments) for c in calls] == [("weather", '{"city": "Ulm"}'), ("time", "{}")]


def test_the_form_of_streamed_calls(calling: Live) -> None:
    """The first delta of a call has id, type, name and empty arguments; the others have arguments alone."""
    chunks = calling.chat(tools=TOOLS, stream=True).events[:-1]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert choices[0]["delta"]["role"] == "assistant"
    assert all("role" not in choice["delta"] for choice in choices[1:])
    calls = [call for choice in choices for call in choice["delta"].get("tool_calls", ())]
    firsts = [call for call in calls if "id" in call]
    assert [call["index"] for call in firsts] == [0, 1]
    assert all(call["type"] == "function" and call["function"]["arguments"] == "" for call in firsts)
    assert all(
        set(call) == {"index", "function"} and set(call["function"]) == {"arguments"}
        for call in calls
        if call not in firsts
    )
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["tool_calls"]
    assert all(chunk["choices"] for chunk in chunks)


def test_no_second_call_where_parallel_calls_are_off(client: OpenAI) -> None:
    made = client.chat.completions.create(model=MODEL, messages=USER, tools=TOOLS, parallel_tool_calls=False)
    calls: Any = made.choices[0].message.tool_calls
    assert [c.function.name for c in calls] == ["weather"]


def test_choice_none_leaves_the_text_alone_and_puts_no_tools_into_the_prompt(calling: Live) -> None:
    choice = calling.chat(tools=TOOLS, tool_choice="none").json["choices"][0]
    assert choice["message"]["content"].startswith("I look.\n<tool_call>") and choice["finish_reason"] == "stop"
    engine: Any = calling.parts.serving.engine
    assert b"tool weather" not in bytes(engine.prompts[-1].token_ids)
    calling.chat(tools=TOOLS)
    assert b"tool weather\ntool time" in bytes(engine.prompts[-1].token_ids)


def test_a_cut_call_is_no_finished_call(calling: Live) -> None:
    choice = calling.chat(tools=TOOLS, max_tokens=40).json["choices"][0]
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_forced_calls_reach_the_sampler_as_a_grammar(calling: Live, choice: Any) -> None:
    assert calling.chat(tools=TOOLS, tool_choice=choice).status == 200
    engine: Any = calling.parts.serving.engine
    grammar = engine.prompts[-1].params.grammar
    assert grammar is not None and "weather" in grammar.text
    assert ("time" in grammar.text) == (choice == "required")


def test_strict_tools_reach_the_sampler_as_a_grammar(calling: Live) -> None:
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]
    assert calling.chat(tools=strict).status == 200
    engine: Any = calling.parts.serving.engine
    assert engine.prompts[-1].params.grammar is not None
    assert calling.chat(tools=TOOLS).status == 200
    assert engine.prompts[-1].params.grammar is None


def test_a_form_and_strict_tools_that_may_be_called_exclude_each_other(client: OpenAI, calling: Live) -> None:
    """A text would have to fit the form, and a call its schema. An answer that must call has no text."""
    strict: Any = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]
    form: Any = {"type": "json_object"}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=USER, tools=strict, response_format=form)
    assert caught.value.param == "response_format"
    assert calling.chat(tools=strict, tool_choice="required", response_format=form).status == 200


def test_ids_are_in_the_form_that_the_models_template_takes_back() -> None:
    with serve('[TOOL_CALLS][{"name": "time", "arguments": {}}]', MISTRAL) as live:
        calls = live.chat(tools=TOOLS).json["choices"][0]["message"]["tool_calls"]
        assert len(calls[0]["id"]) == 9 and calls[0]["id"].isalnum()


def test_reasoning_is_apart_from_the_answer() -> None:
    with serve(f"<think>\nhm hm\n</think>\n\nSo.{CALL}", THINKING) as live:
        made = live.chat(tools=TOOLS).json
        message = made["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("hm hm", "So.")
        assert message["tool_calls"][0]["function"]["name"] == "weather"
        spent = made["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert spent == len(">\nhm hm\n</think>"), "from the token that ends the opening mark"
        joined = {"content": "", "reasoning_content": ""}
        for chunk in live.chat(stream=True, tools=TOOLS).events[:-1]:
            for choice in chunk["choices"]:
                for key in joined:
                    joined[key] += choice["delta"].get(key) or ""
        assert joined == {"content": "So.", "reasoning_content": "hm hm"}


def test_marks_that_are_special_tokens_are_shown_to_the_reader() -> None:
    """The fake's `<end>` is special. A format that needs it puts it into the request."""
    call = CallForm(ObjectNotation(), open="<end>\n", close="no token")

    with serve("x", Format("special", (call,))) as live:
        live.chat(tools=TOOLS)
        engine: Any = live.parts.serving.engine
        assert engine.prompts[-1].shown_token_ids == frozenset({256})
        live.chat()
        assert engine.prompts[-1].shown_token_ids == frozenset()


PARAMETERS = "<parameter=city>\n5\n</parameter>\n<parameter=days>\n5\n</parameter>\n"
CODED = f"Look:\n<tool_call>\n<function=weather>\n{PARAMETERS}</function>"
DAYS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}


@pytest.mark.parametrize("stream", [False, True])
def test_calls_without_types_of_their_own_are_typed_by_the_tools_schema(stream: bool) -> None:
    tools = [{"type": "function", "function": {"name": "weather", "parameters": DAYS}}]
    with serve(CODED, CODER) as live:
        reply = live.chat(tools=tools, stream=stream)
    if stream:
        deltas = [chunk["choices"][0]["delta"] for chunk in reply.events[:-1]]
        parts = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
        name, arguments = parts[0]["name"], "".join(part["arguments"] for part in parts)
        assert len(parts) > 3
    else:
        (call,) = reply.json["choices"][0]["message"]["tool_calls"]
        name, arguments = call["function"]["name"], call["function"]["arguments"]
    assert (name, json.loads(arguments)) == ("weather", {"city": "5", "days": 5})


def test_a_format_without_json_is_held_to_its_schema_in_its_own_notation() -> None:
    with serve(CODED, CODER) as live:
        for fields in (
            {"tool_choice": "required"},
            {"tools": [{**TOOLS[0], "function": {**TOOLS[0]["function"], "strict": True}}]},
        ):
            message = live.chat(**{"tools": TOOLS, **fields}).json["choices"][0]["message"]
            assert json.loads(message["tool_calls"][0]["function"]["arguments"])["city"] == "5"
            assert "<parameter=" in live.parts.serving.engine.prompts[-1].params.grammar.text
