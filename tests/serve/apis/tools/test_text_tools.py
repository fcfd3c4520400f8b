"""Tools that take a text, lines that clients put before the system text, and counted thoughts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.serve.apis.tools.test_agents import USER, ask, prompt, warned
from tests.serve.apis.tools.test_tools import serve
from tests.serve.fakes import MODEL, FakeEngine, fake_parts
from tests.serve.harness import Live, serving
from twostroke.server.api.changed.client_lines import ClientLines
from twostroke.server.api.shapes.reasoning_count import ReasoningCount
from twostroke.server.api.shapes.text_calls import TextCalls
from twostroke.text.talk.calling import Tools
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.pieces import CallArguments, CallBegan, Piece, Said, joined
from twostroke.text.talk.reader import TurnReader
from twostroke.types.notes import Notes

PATCH = '*** Begin Patch\n+ "é" \\ 🙂\n*** End Patch'
CALL = "<tool_call>\n" + json.dumps({"name": "patch", "arguments": {"input": PATCH}}) + "\n</tool_call>"
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}


@pytest.fixture(scope="module")
def patching() -> Iterator[Live]:
    with serve(f"So.\n{CALL}") as live:
        yield live


def test_a_text_tool_over_responses(patching: Live) -> None:
    tools: Any = [{"type": "custom", "name": "patch", "description": "d", "format": GRAMMAR}]
    with OpenAI(base_url=patching.url + "/v1", api_key="none", max_retries=0) as client:
        whole = client.responses.create(model=MODEL, input="hi", tools=tools)
        call: Any = whole.output[1]
        assert (call.type, call.name, call.input) == ("custom_tool_call", "patch", PATCH)
        pieces, final = "", None
        with client.responses.stream(model=MODEL, input="hi", tools=tools) as stream:
            for event in stream:
                if event.type == "response.custom_tool_call_input.delta":
                    pieces += event.delta
                if event.type == "response.completed":
                    final = event.response
        assert pieces == PATCH and final is not None
        last: Any = final.output[1]
        assert (last.type, last.input, last.id[:4]) == ("custom_tool_call", PATCH, "ctc_")
    forced = ask(patching, "responses", tools=tools, tool_choice={"type": "custom", "name": "patch"})
    engine: Any = patching.parts.serving.engine
    assert forced.status == 200 and "patch" in engine.prompts[-1].params.grammar.text


LINES = 'start: "***" line+\nline: /.*/ LF\n%import common.LF'
WAYS = {"regex": ("[*]{3}(.|\n)*", "[*]{3}"), "lark": (LINES, "\\\\*\\\\*\\\\*(?:(?:.*)\\\\n)+")}


@pytest.mark.parametrize("choice", ["auto", "required", "patch"])
@pytest.mark.parametrize("shape", ["chat", "responses"])
@pytest.mark.parametrize("syntax", WAYS)
def test_the_grammar_of_a_text_tool_is_enforced(patching: Live, syntax: str, shape: str, choice: str) -> None:
    """This holds also where the model may choose to call no tool."""
    definition, seen = WAYS[syntax]
    wanted = {"type": "grammar", "syntax": syntax, "definition": definition}
    spec = {"name": "patch", "description": "d"}
    made: Any = {"type": "custom", **spec, "format": wanted}
    asked: Any = {"type": "custom", "name": "patch"} if choice == "patch" else choice
    if shape == "chat":
        made = {"type": "custom", "custom": {**spec, "format": {"type": "grammar", "grammar": wanted}}}
        asked = {"type": "custom", "custom": {"name": "patch"}} if choice == "patch" else choice
    reply = ask(patching, shape, tools=[made], tool_choice=asked)
    engine: Any = patching.parts.serving.engine
    params = engine.prompts[-1].params
    assert reply.status == 200 and "grammar" not in warned(reply)
    assert params.grammar is not None and seen in params.grammar.text


HARD = {
    "start: %json {}": "%json",
    "start: nowhere": "nowhere",
    'start: "(" start ")"': "no text that ends",
    "": "start",
}


@pytest.mark.parametrize("definition", HARD)
def test_a_grammar_that_cannot_be_held_is_told_to_the_model_and_the_client(patching: Live, definition: str) -> None:
    wanted = {"type": "grammar", "syntax": "lark", "definition": definition}
    tools = [{"type": "custom", "name": "patch", "format": wanted}]
    reply = ask(patching, "responses", tools=tools)
    engine: Any = patching.parts.serving.engine
    assert reply.status == 200 and engine.prompts[-1].params.grammar is None
    assert "not enforced" in warned(reply) and HARD[definition] in warned(reply)


def test_a_grammar_that_refers_to_itself_is_held_to_a_depth(patching: Live) -> None:
    wanted = {"type": "grammar", "syntax": "lark", "definition": 'start: "x" | "(" start ")"'}
    reply = ask(patching, "responses", tools=[{"type": "custom", "name": "patch", "format": wanted}])
    assert reply.status == 200 and "enforced with a bound" in warned(reply)


def test_a_text_tool_with_too_long_an_expression_is_refused(patching: Live) -> None:
    wanted = {"type": "grammar", "syntax": "regex", "definition": "a" * 3000}
    reply = ask(patching, "responses", tools=[{"type": "custom", "name": "patch", "format": wanted}])
    assert reply.status == 400 and "patch" in reply.json["error"]["message"]


def test_a_text_tool_over_chat(patching: Live) -> None:
    tools = [{"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar", "grammar": GRAMMAR}}}]
    (call,) = ask(patching, "chat", tools=tools).json["choices"][0]["message"]["tool_calls"]
    assert (call["type"], call["custom"]) == ("custom", {"name": "patch", "input": PATCH})
    chunks = ask(patching, "chat", tools=tools, stream=True).events[:-1]
    deltas = [call for chunk in chunks for c in chunk["choices"] for call in c["delta"].get("tool_calls", ())]
    assert deltas[0]["custom"] == {"name": "patch", "input": ""} and "function" not in deltas[0]
    assert "".join(delta["custom"]["input"] for delta in deltas) == PATCH


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (json.dumps({"input": PATCH}), PATCH),
        (json.dumps({"input": PATCH}, ensure_ascii=False), PATCH),
        ('{"input": "a\nb"}', "a\nb"),
        ("{}", ""),
        ('{"patch": "x"}', '{"patch": "x"}'),
        ('"bare"', "bare"),
        ("broken", "broken"),
        ('{"input": "\\ud83d x"}', "\ufffd x"),
        ('{"input": 5}', '{"input": 5}'),
        ('{"input": "cut \\u00', "cut "),
    ],
)
def test_the_text_of_a_call_however_it_is_cut(size: int, raw: str, text: str) -> None:
    calls, made = TextCalls(frozenset({"patch"})), list[Piece]()
    made += calls.feed([CallBegan(0, "patch")])
    for place in range(0, len(raw), size):
        made += calls.feed([CallArguments(0, raw[place : place + size])])
    made += calls.feed([Said("behind")])
    wanted = [CallArguments(0, text)] if text else []
    assert joined(made) == [CallBegan(0, "patch"), *wanted, Said("behind")]


# ---- lines of clients ----------------------------------------------------------------------------------------------
LINE = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=fa690;"
SYSTEMS: list[tuple[Any, Any]] = [
    (LINE + "\nRules", "Rules"),
    (LINE + "You are", "You are"),
    ([{"type": "text", "text": LINE}, {"type": "text", "text": "Rules"}], [{"type": "text", "text": "Rules"}]),
    ([{"type": "text", "text": LINE + "\nRules"}], [{"type": "text", "text": "Rules"}]),
]
KEPT = ["Rules\n" + LINE, "x-other-header: a=b;\nRules", "x-anthropic-billing-header: free text\n", "Date: 1", 5]


@pytest.mark.parametrize(("given", "left"), SYSTEMS)
def test_a_clients_line_in_front_is_taken_out(given: Any, left: Any) -> None:
    notes, messages = Notes(), [{"role": "system", "content": given}, *USER]
    assert ClientLines().without(messages, notes) == [{"role": "system", "content": left}, *USER]
    assert "Claude Code" in notes.texts[0]
    assert ClientLines(keep=True).without(messages, Notes()) == messages


@pytest.mark.parametrize("given", KEPT)
def test_nothing_else_is_taken_out(given: Any) -> None:
    for messages in ([{"role": "system", "content": given}, *USER], [{"role": "user", "content": LINE}], []):
        assert ClientLines().without(messages, Notes()) == messages


def test_a_message_that_held_the_line_alone_is_left_out(live: Live) -> None:
    for system in (LINE, [{"type": "text", "text": LINE}]):
        assert ask(live, "say", system=system).status == 200
        assert prompt(live).startswith("user: hi")
    with serving(fake_parts(FakeEngine(), client_lines=ClientLines(keep=True))) as keeping:
        assert ask(keeping, "say", system=LINE).status == 200
        assert prompt(keeping).startswith(f"system: {LINE}")


# ---- counted thoughts ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_thoughts_are_counted_by_tokens_however_they_come(size: int) -> None:
    text = b"<think>\xc3\xa9 hm</think>So."
    count = ReasoningCount(TurnReader(FORMATS["hermes"], Tools()), lambda token_id: bytes([token_id]))
    for place in range(0, len(text), size):
        count.add(text[place : place + size])
    assert count.tokens == len(b">\xc3\xa9 hm</think>")
    assert ReasoningCount(None, lambda token_id: b"").tokens == 0
