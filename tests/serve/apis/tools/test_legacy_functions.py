"""`functions` and `function_call` over chat completions, by the real `openai` package, which still has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.serve.apis.tools.test_tools import CALL, CALL_2, CITY, TOOLS, USER
from tests.serve.fakes import MODEL, FakeEngine, fake_parts
from tests.serve.harness import Live, serving
from twostroke.server.build import build_server

FUNCTIONS: Any = [tool["function"] for tool in TOOLS]


@pytest.fixture(scope="module")
def calling() -> Iterator[Live]:
    with serving(fake_parts(FakeEngine(f"I look.\n{CALL}\n{CALL_2}"))) as live:
        yield live


@pytest.fixture
def client(calling: Live) -> Iterator[OpenAI]:
    with OpenAI(base_url=calling.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def test_the_answer_has_the_older_form_whole(client: OpenAI) -> None:
    choice = client.chat.completions.create(model=MODEL, messages=USER, functions=FUNCTIONS).choices[0]
    assert choice.finish_reason == "function_call" and choice.message.content == "I look."
    called = choice.message.function_call
    assert called is not None and (called.name, called.arguments) == ("weather", '{"city": "Ulm"}')
    assert choice.message.tool_calls is None, "one form, and the second call has no place in it"


def test_the_answer_has_the_older_form_streamed(calling: Live) -> None:
    chunks = calling.chat(functions=FUNCTIONS, stream=True).events[:-1]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    told = [delta["function_call"] for delta in deltas if "function_call" in delta]
    assert told[0] == {"name": "weather", "arguments": ""} and all(set(each) == {"arguments"} for each in told[1:])
    assert "".join(each["arguments"] for each in told) == '{"city": "Ulm"}'
    assert not any("tool_calls" in delta for delta in deltas)
    assert chunks[-1]["choices"][0]["finish_reason"] == "function_call"


def test_the_prompt_is_the_same_as_with_tools(calling: Live) -> None:
    engine: Any = calling.parts.serving.engine
    turn = {"name": "weather", "arguments": '{"city": "Ulm"}'}
    old = [
        *USER,
        {"role": "assistant", "content": None, "function_call": turn},
        {"role": "function", "name": "weather", "content": "rain"},
    ]
    call = {"id": "call_1", "type": "function", "function": turn}
    new = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    assert calling.chat(messages=old, functions=FUNCTIONS).status == 200
    assert calling.chat(messages=new, tools=TOOLS).status == 200
    assert calling.chat(messages=old).json["choices"][0]["finish_reason"] == "stop", "without functions it is text"
    assert engine.prompts[-3].token_ids == engine.prompts[-2].token_ids


@pytest.mark.parametrize("choice", ["none", "auto"])
def test_neutral_values_beside_nothing_and_beside_tools(calling: Live, choice: str) -> None:
    assert calling.chat(functions=[], function_call=choice).json["choices"][0]["finish_reason"] == "stop"
    message = calling.chat(tools=TOOLS, function_call=choice).json["choices"][0]["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["weather", "time"]


def test_function_call_none_leaves_the_text_alone(calling: Live) -> None:
    choice = calling.chat(functions=FUNCTIONS, function_call="none").json["choices"][0]
    assert choice["finish_reason"] == "stop" and "function_call" not in choice["message"]
    assert choice["message"]["content"].startswith("I look.\n<tool_call>")


def test_both_forms_at_once_are_refused_with_the_newer_ones_name(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="Send tools alone") as refused:
        client.chat.completions.create(model=MODEL, messages=USER, functions=FUNCTIONS, tools=TOOLS)
    assert refused.value.param == "functions"


def test_a_named_function_is_called_with_arguments_that_fit() -> None:
    with build_server("spark", {"kv_memory": "8MB", "threads": 1}) as built, serving(built.parts) as live:
        weather = [{"name": "weather", "parameters": CITY}]
        asked: dict[str, Any] = {"functions": weather, "function_call": {"name": "weather"}, "temperature": 0}
        choice = live.chat(**asked, max_tokens=200).json["choices"][0]
    assert choice["finish_reason"] in ("function_call", "length")
    assert choice["message"]["function_call"]["name"] == "weather"
    assert choice["message"]["function_call"]["arguments"].replace(" ", "").startswith('{"city":')
