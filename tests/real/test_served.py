"""A published chat model on a real socket, asked by the real `openai` package: chat, stops, tools, JSON schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.serve.harness import Live, serving
from twostroke.server.build import build_server

CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30}}, "required": ["city"]}
TOOLS: Any = [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": CITY}}]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "languages": {"type": "array", "items": {"enum": ["French", "German", "Dutch"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "age", "languages"],
    "additionalProperties": False,
}
FRANCE: Any = [{"role": "user", "content": "What is the capital of France?"}]
CONTROL = ("<|im_start|>", "<|im_end|>")


@pytest.fixture(scope="module")
def smol(smol_file: Path) -> Iterator[Live]:
    """A server with weights that are rounded no further than the file's, so that answers are those of the model."""
    options = {"context": 1024, "kv_memory": "64MB", "weights": "f32", "kv_format": "f32", "served_name": "smol"}
    with build_server(str(smol_file), options) as built, serving(built.parts) as live:
        yield live


@pytest.fixture
def client(smol: Live) -> Iterator[OpenAI]:
    with OpenAI(base_url=smol.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def ask(client: OpenAI, messages: Any, **fields: Any) -> Any:
    return client.chat.completions.create(model="smol", messages=messages, **{"temperature": 0, **fields}).choices[0]


def test_it_answers_and_ends_by_itself(client: OpenAI) -> None:
    choice = ask(client, FRANCE, max_tokens=60)
    assert "Paris" in choice.message.content and choice.finish_reason == "stop"
    assert not any(control in choice.message.content for control in CONTROL)
    pieces = client.chat.completions.create(model="smol", messages=FRANCE, temperature=0, max_tokens=60, stream=True)
    assert "".join(each.choices[0].delta.content or "" for each in pieces if each.choices) == choice.message.content


def test_a_stop_string_ends_the_answer_before_it(client: OpenAI) -> None:
    whole = ask(client, FRANCE, max_tokens=60).message.content
    cut = ask(client, FRANCE, max_tokens=60, stop=["Paris"])
    assert cut.message.content == whole.partition("Paris")[0] and cut.finish_reason == "stop"


@pytest.mark.slow
def test_a_conversation_goes_on(client: OpenAI) -> None:
    told: Any = [
        {"role": "system", "content": "You answer in few words."},
        {"role": "user", "content": "My name is Ada and I live in Turin."},
        {"role": "assistant", "content": "Nice to meet you, Ada."},
        {"role": "user", "content": "What is my name?"},
    ]
    assert "Ada" in ask(client, told, max_tokens=40).message.content


@pytest.mark.slow
def test_a_schema_is_kept(client: OpenAI) -> None:
    asked: Any = [{"role": "user", "content": "Invent a person as JSON with name, age and languages."}]
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    for fields in ({"temperature": 0}, {"temperature": 1.0, "seed": 3}):
        choice = ask(client, asked, response_format=form, max_tokens=200, **fields)
        made = json.loads(choice.message.content)
        assert set(made) == {"name", "age", "languages"} and 0 <= made["age"] <= 120
        assert set(made["languages"]) <= {"French", "German", "Dutch"} and choice.finish_reason == "stop"


@pytest.mark.slow
def test_a_tool_that_must_be_called_is_called(client: OpenAI) -> None:
    asked: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
    choice = ask(client, asked, tools=TOOLS, tool_choice="required", max_tokens=100)
    calls = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and {call.function.name for call in calls} == {"weather"}
    assert all(isinstance(json.loads(call.function.arguments)["city"], str) for call in calls)
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny, 24 degrees"} for call in calls]
    called = {"role": "assistant", "tool_calls": [call.model_dump() for call in calls]}
    after = ask(client, [*asked, called, *results], tools=TOOLS, tool_choice="none", max_tokens=60)
    assert after.message.content and not after.message.tool_calls
