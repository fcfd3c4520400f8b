"""Requests in the words of other APIs, languages and cut texts: read where the meaning is clear, else refused by name.

Cursor sends Responses' and Anthropic's shapes to chat completions; Gson and Lua write 8.0 for 8; JavaScript cuts texts
within surrogate pairs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.serve.apis.tools.test_agents import CHAT_TOOL, FLAT_TOOL, OWN, PATHS, SAY_TOOL, USER, ask, prompt, warned
from tests.serve.apis.tools.test_tools import CITY
from tests.serve.fakes import MODEL, FakeEngine, fake_parts
from tests.serve.harness import Live, Reply, serving
from twostroke.server.api.changed.chat_words import in_chat_words
from twostroke.server.api.schema import ChatRequest
from twostroke.server.gate.decode import decode
from twostroke.server.several.asked import asked_of
from twostroke.text.talk.catalog import FORMATS
from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import Grammar
from twostroke.types.notes import Notes


def message_of(reply: Reply) -> str:
    assert reply.status == 400, reply.body
    text: str = reply.json["error"]["message"]
    return text


# ---- bodies --------------------------------------------------------------------------------------------------------
HALVES = {
    r"a\ud83dz": "a\ufffdz",
    r"\ude00": "\ufffd",
    r"\uD83D": "\ufffd",
    r"\ud83d\ude00": "\U0001f600",
    r"\ud83d\ud83d\ude00\ude00": "\ufffd\U0001f600\ufffd",
    r"\ud83d\u0041": "\ufffdA",
    r"\\ud83d \ud83d": "\\ud83d \ufffd",
    r"\\\ud83d": "\\\ufffd",
    r"\\ud83d\ude00": "\\ud83d\ufffd",
}


@pytest.mark.parametrize("text", HALVES)
def test_half_of_a_surrogate_pair_is_read_as_the_mark_for_it(text: str) -> None:
    body = '{"model": "m", "messages": [{"role": "user", "content": "' + text + '"}]}'
    assert decode(body.encode(), ChatRequest).messages[0]["content"] == HALVES[text]
    assert asked_of(body.encode()).asked == "m", "several models: the request goes to the model that it names"


@pytest.mark.parametrize("api", PATHS)
def test_a_cut_text_in_a_history_ends_no_session(live: Live, api: str) -> None:
    field = "input" if api == "responses" else "messages"
    body = json.dumps({"model": MODEL, "max_tokens": 5, field: USER * 3, "topp": 1}).replace("hi", r"h\ud83d", 1)
    reply = live.post(PATHS[api], body.encode())
    assert reply.status == 200 and "h\ufffd" in prompt(live)
    assert reply.headers["x-twostroke-ignored-fields"].count("topp") == 1


def test_a_mark_of_the_byte_order_is_no_part_of_a_body(live: Live) -> None:
    body = json.dumps({"model": MODEL, "prompt": "a"}).encode()
    assert live.post("/v1/completions", b"\xef\xbb\xbf" + body).status == 200
    assert live.post("/v1/completions", b"\xef\xbb\xbf").status == 400
    assert "has no body" in message_of(live.post("/v1/completions", b""))


@pytest.mark.parametrize(("number", "count"), [("5.0", 5), ("5e0", 5), ("50E-1", 5), ("5", 5)])
def test_a_whole_number_may_be_written_as_others_are(live: Live, number: str, count: int) -> None:
    body = json.dumps({"model": MODEL, "messages": USER, "n": 1, "temperature": 0.5, "top_k": 7}).encode()
    reply = live.post(PATHS["chat"], body[:-1] + f', "max_tokens": {number}, "seed": 3.0}}'.encode())
    params = live.parts.serving.engine.prompts[-1].params  # type: ignore[attr-defined]
    assert reply.status == 200, reply.body
    assert (params.max_tokens, params.seed, params.temperature, params.top_k) == (count, 3, 0.5, 7)


@pytest.mark.parametrize("number", ["5.5", '"5"', "true", "1e300", "9007199254740993.0"])
def test_what_is_no_whole_number_is_refused(live: Live, number: str) -> None:
    body = json.dumps({"model": MODEL, "messages": USER}).encode()
    assert "max_tokens" in message_of(live.post(PATHS["chat"], body[:-1] + f', "max_tokens": {number}}}'.encode()))


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_minus_one_is_no_limit(live: Live, field: str) -> None:
    engine: Any = live.parts.serving.engine
    assert ask(live, "chat", **{field: -1}).status == 200
    assert engine.prompts[-1].params.max_tokens is None
    assert "max_completion_tokens" in message_of(ask(live, "chat", max_completion_tokens=-2))


def test_minus_one_is_no_limit_of_completions(live: Live) -> None:
    engine: Any = live.parts.serving.engine
    assert live.complete(max_tokens=-1).status == 200
    whole = engine.prompts[-1].params.max_tokens
    assert live.complete(n_predict=-1).status == 200 and engine.prompts[-1].params.max_tokens == whole > 16


# ---- tools ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tool", [CHAT_TOOL, FLAT_TOOL, SAY_TOOL], ids=["chat", "responses", "say"])
@pytest.mark.parametrize("api", PATHS)
def test_each_api_reads_the_tools_of_all(live: Live, api: str, tool: Any) -> None:
    if api == "responses" and "type" not in tool:
        assert ask(live, api, tools=[tool]).status == 400, "there the type is required"
        return
    assert warned(ask(live, api, tools=[tool])) == ""
    assert prompt(live).startswith("tool weather\n")


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_text_tool_may_stand_without_its_wrapper(live: Live, api: str) -> None:
    tool = {"type": "custom", "name": "patch", "description": "d", "format": {"type": "text"}}
    assert warned(ask(live, api, tools=[tool])) == ""
    assert prompt(live).startswith("tool patch\n")


FORCED = {"type": "function", "function": {"name": "weather"}}


@pytest.mark.parametrize(
    ("choice", "same"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "required"}, "required"),
        ({"type": "any"}, "required"),
        ("any", "required"),
        ({"type": "function", "name": "weather"}, FORCED),
        ({"type": "tool", "name": "weather"}, FORCED),
    ],
)
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_choice_in_the_words_of_another_api(live: Live, api: str, choice: Any, same: Any) -> None:
    engine: Any = live.parts.serving.engine
    made = []
    for each in (choice, same):
        assert ask(live, api, tools=[OWN[api]], tool_choice=each).status == 200
        made.append((engine.prompts[-1].params.grammar, prompt(live)))
    assert made[0] == made[1]


@pytest.mark.parametrize("choice", ["all", {"type": "function"}, {"type": "tool", "name": {}}, {"type": []}, {}])
def test_a_choice_of_nothing_is_refused(live: Live, choice: Any) -> None:
    assert "tool_choice" in message_of(ask(live, "chat", tools=[CHAT_TOOL], tool_choice=choice))


@pytest.mark.parametrize("name", ["wether", None, {}])
def test_a_choice_among_tools_that_are_not_there_is_refused(live: Live, name: Any) -> None:
    listed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": name}]}
    assert "none of the tools" in message_of(ask(live, "responses", tools=[FLAT_TOOL], tool_choice=listed))


@pytest.mark.parametrize("api", PATHS)
def test_a_tool_that_is_listed_twice_stands_once(live: Live, api: str) -> None:
    assert "listed more than once" in warned(ask(live, api, tools=[OWN[api]] * 3))
    assert prompt(live).count("tool weather\n") == 1
    other = json.loads(json.dumps(OWN[api]).replace('"city"', '"town"'))
    assert "'weather'" in message_of(ask(live, api, tools=[OWN[api], other]))


@pytest.mark.parametrize("name", ["mcp/fetch", "a:b", "sök", "", "x" * 129])
def test_a_name_that_cannot_be_is_in_the_error(live: Live, name: str) -> None:
    tool = {"type": "function", "function": {"name": name, "parameters": CITY}}
    assert repr(name[:60]) in message_of(ask(live, "chat", tools=[tool]))


@pytest.mark.parametrize("api", PATHS)
def test_a_large_schema_is_refused_only_where_it_must_be_enforced(api: str) -> None:
    words = {f"field_{place}": {"type": "string", "description": "d" * 90} for place in range(600)}
    schema = json.dumps({"type": "object", "properties": words})
    large = json.loads(json.dumps(OWN[api]).replace(json.dumps(CITY), schema))
    choice: Any = {"type": "any"} if api == "say" else "required"
    with serving(fake_parts()) as live:
        assert ask(live, api, tools=[large]).status == 200
        refused = message_of(ask(live, api, tools=[large], tool_choice=choice))
    assert "'weather'" in refused and "65,536" in refused


# ---- forms ---------------------------------------------------------------------------------------------------------
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        {"type": "json_schema", "name": "x", "strict": True, "schema": SCHEMA},
        {"type": "json_schema", "schema": SCHEMA},
    ],
)
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_schema_may_stand_with_or_without_its_wrapper(live: Live, api: str, form: Any) -> None:
    engine: Any = live.parts.serving.engine
    assert ask(live, api, **({"response_format": form} if api == "chat" else {"text": {"format": form}})).status == 200
    assert engine.prompts[-1].params.grammar == Grammar.json_schema(SCHEMA)


def test_a_body_of_responses_may_come_to_chat_completions(live: Live) -> None:
    """Cursor's agent mode."""
    body = {
        "model": MODEL,
        "instructions": "be kind",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "sun"},
        ],
        "tools": [FLAT_TOOL],
        "reasoning": {"effort": "high", "summary": "auto"},
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "max_output_tokens": 5,
        "store": False,
        "stream": True,
    }
    reply = live.post(PATHS["chat"], body)
    assert reply.status == 200 and reply.events[-1] == "[DONE]"
    assert "x-twostroke-ignored-fields" not in reply.headers
    text = prompt(live)
    assert text.startswith("tool weather\nsystem: be kind\nuser: hi\n") and "tool: sun\n" in text
    assert live.parts.serving.engine.prompts[-1].params.max_tokens == 5  # type: ignore[attr-defined]
    assert "input" in message_of(live.post(PATHS["chat"], {**body, "messages": USER}))
    assert "messages" in message_of(live.post(PATHS["chat"], {"model": MODEL, "messages": []}))


# ---- thoughts ------------------------------------------------------------------------------------------------------
def chat_of(**fields: Any) -> ChatRequest:
    request = decode(msgspec.json.encode({"messages": USER, **fields}), ChatRequest)
    in_chat_words(request, 64, Notes())
    return request


OFF, ON = {"type": "disabled"}, {"type": "enabled"}


@pytest.mark.parametrize(
    ("fields", "effort", "thinking", "shown"),
    [
        ({"reasoning": {"effort": "low"}}, "low", None, None),
        ({"reasoning": {"effort": "low"}, "reasoning_effort": "low"}, "low", None, None),
        ({"reasoning": {"enabled": False}}, None, OFF, None),
        ({"reasoning": False}, None, OFF, None),
        ({"reasoning": True}, None, ON, None),
        ({"reasoning": {"max_tokens": 99}}, None, {"budget_tokens": 99}, None),
        ({"reasoning": {"exclude": True}}, None, None, False),
        ({"reasoning": {"exclude": False, "summary": "auto"}}, None, None, None),
        ({"include_reasoning": False}, None, None, False),
        ({"enable_thinking": False}, None, OFF, None),
        ({"enable_thinking": True, "thinking": ON}, None, ON, None),
        ({"think": False}, None, OFF, None),
        ({"think": "high"}, "high", None, None),
    ],
)
def test_a_wish_about_thinking_in_other_words(fields: Any, effort: Any, thinking: Any, shown: Any) -> None:
    made = chat_of(**fields)
    assert (made.reasoning_effort, made.thinking, made.include_reasoning) == (effort, thinking, shown)


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": {"effort": "low"}, "reasoning_effort": "high"},
        {"reasoning": {"effort": 3}},
        {"reasoning": {"enabled": "no"}},
        {"reasoning": {"exclude": 1}},
        {"enable_thinking": False, "thinking": ON},
        {"think": True, "thinking": OFF},
        {"max_output_tokens": 5, "max_completion_tokens": 6},
    ],
)
def test_wishes_that_contradict_or_are_none_are_refused(fields: Any) -> None:
    with pytest.raises(InvalidRequest):
        chat_of(**fields)


@pytest.mark.parametrize("api", ["chat", "say"])
@pytest.mark.parametrize(
    "thinking", [{"type": "maybe"}, {"type": 1}, {"budget_tokens": "9"}, {"budget_tokens": -1}, {"budget_tokens": True}]
)
def test_thinking_that_is_no_wish_is_refused(live: Live, api: str, thinking: Any) -> None:
    assert "thinking" in message_of(ask(live, api, thinking=thinking))


MARKS = {"chat": '"reasoning_content"', "responses": '"type":"reasoning"', "say": '"thinking"'}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("api", "hiding"),
    [
        ("chat", {"include_reasoning": False}),
        ("chat", {"reasoning": {"exclude": True}}),
        ("responses", {"include_reasoning": False}),
        ("say", {"thinking": {"type": "adaptive", "display": "omitted"}}),
    ],
)
def test_thoughts_may_be_left_out(thinker: Live, api: str, hiding: Any, stream: bool) -> None:
    for fields, shown in (({}, True), (hiding, False)):
        reply = ask(thinker, api, stream=stream, **fields)
        assert reply.status == 200 and (MARKS[api] in reply.body.decode()) is shown


def test_thoughts_that_are_left_out_are_counted(thinker: Live) -> None:
    shown, hidden = (ask(thinker, "chat", include_reasoning=wish).json for wish in (True, False))
    assert [made["choices"][0]["message"]["content"] for made in (shown, hidden)] == ["said", "said"]
    assert shown["usage"] == hidden["usage"]
    assert hidden["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


@pytest.fixture(scope="module")
def thinker() -> Iterator[Live]:
    with serving(fake_parts(FakeEngine("<think>secret</think>\n\nsaid"), format=FORMATS["hermes"])) as server:
        yield server


# ---- errors in the API's own words ---------------------------------------------------------------------------------
LONG = "x" * 70_000


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stop_sequences": [""]}, "stop_sequences holds an empty"),
        ({"output_config": {"effort": 5}}, "output_config.effort"),
        (
            {"output_format": {"type": "json_schema", "schema": {"title": "x" * 70_000}}},
            "output_config.format: The JSON",
        ),
        ({"thinking": {"type": "adaptive", "display": "loud"}}, "thinking.display"),
    ],
)
def test_messages_name_their_own_fields(live: Live, fields: Any, words: str) -> None:
    assert message_of(ask(live, "say", **fields)).startswith(words)
