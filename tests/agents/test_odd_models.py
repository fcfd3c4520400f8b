"""Bad input over four shapes of the API: templates that loop or fail, contradicted formats, odd names, many tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agents.script import LOOP_TEMPLATE, looping, written
from tests.serve.fakes import MODEL
from tests.serve.harness import Live, Reply
from tests.text.talk.reading import TOOLS
from tests.tiers import rest_daily
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.templates.chat_template import ChatTemplate

PATHS = {
    "chat": "/v1/chat/completions",
    "legacy": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
"""The path `legacy` sends functions in place of tools."""
ASK = [{"role": "user", "content": "When?"}]
LOOPING = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
FAILING = {
    "refuses": ("{{ raise_exception('No cats here.') }}", "No cats here."),
    "wrong": ("{{ messages[99].content.items() }}", "cannot render these messages"),
    "loops": (LOOPING, "chat template"),
}


def ask(live: Live, shape: str, tools: dict[str, Any], stream: bool = False) -> Reply:
    functions = [{"name": name, "description": "About.", "parameters": schema} for name, schema in tools.items()]
    said: dict[str, Any] = {"model": MODEL, "stream": stream}
    if shape == "chat":
        said |= {"messages": ASK, "tools": [{"type": "function", "function": each} for each in functions]}
    elif shape == "legacy":
        said |= {"messages": ASK, "functions": functions}
    elif shape == "responses":
        said |= {"input": "When?", "tools": [{"type": "function", **each} for each in functions]}
    else:
        renamed = [{"name": name, "description": "About.", "input_schema": schema} for name, schema in tools.items()]
        said |= {"messages": ASK, "max_tokens": 5000, "tools": renamed}
    return live.post(PATHS[shape], {name: value for name, value in said.items() if value not in ([], False)})


def calls_of(shape: str, reply: Reply) -> list[tuple[str, Any]]:
    """The names and arguments of the calls, for an answer that is whole."""
    assert reply.status == 200, reply.body
    made = reply.json
    if shape == "messages":
        return [(each["name"], each["input"]) for each in made["content"] if each["type"] == "tool_use"]
    if shape == "responses":
        called = [each for each in made["output"] if each["type"] == "function_call"]
    else:
        message = made["choices"][0]["message"]
        one = message.get("function_call")
        called = [one] if one else [each["function"] for each in message.get("tool_calls") or []]
    return [(each["name"], json.loads(each["arguments"])) for each in called]


def text_of(shape: str, reply: Reply) -> str:
    """The text of an answer that is whole."""
    assert reply.status == 200, reply.body
    made = reply.json
    if shape == "messages":
        return "".join(each.get("text", "") for each in made["content"])
    if shape == "responses":
        parts = [part for each in made["output"] if each["type"] == "message" for part in each["content"]]
        return "".join(part["text"] for part in parts)
    return made["choices"][0]["message"]["content"] or ""


@pytest.mark.parametrize("shape", PATHS)
@pytest.mark.parametrize("kind", FAILING)
def test_a_template_that_fails_is_a_clear_refusal(kind: str, shape: str) -> None:
    source, words = FAILING[kind]
    # Only the loop can reach its limit, so a busy machine cannot end the other cases first.
    limit = {"render_limit_s": 0.2} if kind == "loops" else {}
    template = ChatTemplate({"default": source}, {}, **limit)
    with looping(FORMATS["hermes"], ["Fine."], template=template) as (live, _):
        for stream in (False, True):
            reply = ask(live, shape, {}, stream)
            assert words in reply.body.decode(), reply.body
            assert reply.status == 400 or shape == "responses" and b"response.failed" in reply.body
        assert live.get("/health").status == 200


@pytest.mark.parametrize("shape", PATHS)
def test_an_answer_in_another_format_than_the_models_loses_nothing(shape: str) -> None:
    """The format of the server is one, and the model writes another. All of it must come as text."""
    raw = "I look. " + written(FORMATS["glm"], [("hours", {"day": "Mon"})])
    with looping(FORMATS["mistral"], [raw]) as (live, _):
        reply = ask(live, shape, TOOLS)
        assert text_of(shape, reply) == raw and not calls_of(shape, reply)


ODD_NAMES = ("a-b_c9", "mcp__files__read", "x" * 64)
"""Names that the makers of all APIs allow."""
ODDER_NAMES = ("files.read", "files/read", "ns:tool", "find\u00e9", "get weather")
"""Names that some clients send and that official servers refuse."""


FORMS = ("hermes", "qwen3_coder", "glm", "harmony", "kimi", "gemma4", "mistral", "llama3")
WAYS = [(shape, name, form) for shape in PATHS for name in ODD_NAMES for form in FORMS]
IN_TURN = {
    (shape, name, form)
    for place, form in enumerate(FORMS)
    for other, name in enumerate(ODD_NAMES)
    for shape in list(PATHS)[(place + other) % len(PATHS) :][:1]
}
"""Each name in each format, with each API in turn."""


@pytest.mark.parametrize(("shape", "name", "form"), rest_daily(WAYS, IN_TURN))
def test_a_tool_with_an_odd_name_is_called_by_it(shape: str, name: str, form: str) -> None:
    tools = {name: TOOLS["hours"], "bell": TOOLS["bell"]}
    raw = written(FORMATS[form], [(name, {"day": "Mon"})])
    with looping(FORMATS[form], [raw]) as (live, engine):
        assert calls_of(shape, ask(live, shape, tools)) == [(name, {"day": "Mon"})]
        assert name in engine.texts[-1]


@pytest.mark.parametrize("name", ODDER_NAMES)
@pytest.mark.parametrize("shape", PATHS)
def test_a_tool_with_an_odder_name_is_called_or_clearly_refused(shape: str, name: str) -> None:
    raw = written(FORMATS["hermes"], [(name, {"day": "Mon"})])
    with looping(FORMATS["hermes"], [raw]) as (live, _):
        reply = ask(live, shape, {name: TOOLS["hours"]})
        if reply.status == 200:
            assert calls_of(shape, reply) == [(name, {"day": "Mon"})]
        else:
            assert reply.status == 400 and "name" in reply.json["error"]["message"]


@pytest.mark.parametrize("shape", PATHS)
def test_a_thousand_tools(shape: str) -> None:
    tools = {f"tool_{number}": TOOLS["hours"] for number in range(1000)}
    raw = written(FORMATS["hermes"], [("tool_999", {"day": "Mon"})])
    short = LOOP_TEMPLATE.replace("t | tojson", "t.function.name")
    with looping(FORMATS["hermes"], [raw], template=ChatTemplate({"default": short}, {})) as (live, engine):
        reply = ask(live, shape, tools)
        if reply.status == 200:
            assert calls_of(shape, reply) == [("tool_999", {"day": "Mon"})]
            assert all(f"tool_{number}" in engine.texts[-1] for number in range(1000))
        else:
            assert reply.status == 400 and "tools" in reply.json["error"]["message"], reply.body
