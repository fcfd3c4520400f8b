"""Laws over every format: names are whole at any end of the text, and content has no mark. Enforced answers think
first, and one switch exists in the words of every API."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.agents.script import looping
from tests.serve.fakes import MODEL, FakeEngine, fake_parts
from tests.text.talk.reading import TOOLS, pieces_of, read, written
from twostroke.server.prompts import chat_call
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.format import Format
from twostroke.text.talk.pieces import CallBegan
from twostroke.text.talk.switches import BUDGETS, VALUES
from twostroke.text.templates.chat_template import ChatTemplate

CALLING = [form for form in FORMATS.values() if form.calls]
THINKING = [form for form in CALLING if form.thought]
MARKED = [form for form in CALLING if not (form.messages or form.calls[0].bare)]
NAMES = ("run", "run_in", "run_in_terminal", "in_terminal", "run-in", "run_in.terminal")
SAME_BEGINNINGS = {name: TOOLS["hours"] for name in NAMES}
names = pytest.mark.parametrize("name", NAMES)


def every(forms: list[Format]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("form", forms, ids=lambda form: form.name)


@names
@every(CALLING)
def test_a_name_comes_whole_or_not_at_all(form: Format, name: str) -> None:
    """This is true for each place where the text may end, with other names that have the same beginning or end."""
    text = written(form, [(name, {"day": "Mon"})])
    for end in range(len(text) + 1):
        found = [piece.name for piece in pieces_of(form, [text[:end]], tools=SAME_BEGINNINGS) if _begins(piece)]
        assert found in ([], [name]), text[:end]
        whole = [piece.name for piece in pieces_of(form, list(text[:end]), tools=SAME_BEGINNINGS) if _begins(piece)]
        assert whole == found
    assert found == [name]


def _begins(piece: object) -> bool:
    return isinstance(piece, CallBegan)


@names
@every(CALLING)
def test_a_name_that_is_longer_or_shorter_than_an_offered_one_is_none(form: Format, name: str) -> None:
    for other in (name + "s", name[:-1], name.upper()):
        raw = written(form, [(other, {"day": "Mon"})])
        assert not read(form, [raw], "", {name: TOOLS["hours"]}).calls, raw


TEXTS = ("I look.", "First a < b, then [1].", "So: {x} and (y).", "At nine.")
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("hours", {"day": "Mon"}), ("bell", {}), ("shelf", {"title": "a <b> c", "copies": 3, "place": {"rows": [1]}})
)


@every(MARKED)
def test_no_mark_is_content_whatever_the_order_of_a_turns_parts(form: Format) -> None:
    for seed in range(25):
        dice = random.Random(seed)
        raw, said, called = "", "", []
        if form.thought is not None and dice.random() < 0.5:
            raw += f"{form.thought.opening}Which?{form.thought.closing}"
        for _ in range(dice.randint(1, 4)):
            if dice.random() < 0.5:
                text = dice.choice(TEXTS)
                raw, said = raw + text, said + text
            else:
                calls = [dice.choice(CALLS) for _ in range(dice.randint(1, 3))]
                raw, called = raw + written(form, calls), [*called, *calls]
        found = read(form, [raw])
        assert [(name, json.loads(text)) for name, text, _ in found.calls] == called, raw
        assert "".join(found.content.split()) == "".join(said.split()), raw
        assert not [mark for mark in form.texts if len(mark) > 3 and mark in found.content], raw


# ---- held answers --------------------------------------------------------------------------------------------------
ASK = [{"role": "user", "content": "When?"}]
OFFERED = [{"type": "function", "function": {"name": "hours", "parameters": TOOLS["hours"]}}]
SCHEMA = {"type": "object", "properties": {"day": {"type": "string"}}}
HELD: dict[str, dict[str, Any]] = {
    "required": {"tools": OFFERED, "tool_choice": "required"},
    "named": {"tools": OFFERED, "tool_choice": {"type": "function", "function": {"name": "hours"}}},
    "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
    "object": {"response_format": {"type": "json_object"}},
}
HEAD = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def grammar_of(form: Format, prompt_end: str, asked: dict[str, Any]) -> str:
    """The whole grammar that constrains the answer of a chat request, as one text."""
    template = ChatTemplate({"default": HEAD + "{{ '" + prompt_end.replace("\n", "\\n") + "' }}"}, {})
    parts = fake_parts(FakeEngine(), context_tokens=8000, template=template, format=form)
    call = chat_call(json.dumps({"model": MODEL, "messages": ASK, **asked}).encode(), parts.serving)
    grammar = call.prompts[0].params.grammar
    assert grammar is not None
    thought = grammar.thought
    return grammar.text + ("" if thought is None else f"{thought.opening} {thought.closing} {thought.around}")


@pytest.mark.parametrize("kind", HELD)
@every(THINKING)
def test_a_held_answer_may_think_first_unless_the_prompt_ended_the_thought(form: Format, kind: str) -> None:
    marks = form.thought
    assert marks is not None
    closing = marks.closing.strip()
    ends_answers = sum(closing == end for _, end in form.answers) if "response_format" in HELD[kind] else 0
    for prompt_end, thinks in ((marks.opening, True), ("", True), (marks.opening + marks.closing, False)):
        held = grammar_of(form, prompt_end, HELD[kind]).replace('\\"', '"')
        assert (held.count(closing) > ends_answers) is thinks, held


# ---- one switch ----------------------------------------------------------------------------------------------------
SWITCHES: dict[str, str] = {
    **{name: f"{name} is defined and {name} == {off!r}" for name, (_, off) in VALUES.items()},
    **{name: f"{name} is defined and {name} == 0" for name in BUDGETS},
}
OFF: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": ASK, "reasoning_effort": "none"}),
    "chat, by kind": ("/v1/chat/completions", {"messages": ASK, "thinking": {"type": "disabled"}}),
    "chat, by a variable": (
        "/v1/chat/completions", {"messages": ASK, "chat_template_kwargs": {"enable_thinking": False}}
    ),
    "responses": ("/v1/responses", {"input": "When?", "reasoning": {"effort": "none"}}),
    "messages": ("/v1/messages", {"messages": ASK, "max_tokens": 99, "thinking": {"type": "disabled"}}),
    "ollama": ("/api/chat", {"messages": ASK, "think": False, "stream": False}),
}
ON: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": ASK, "reasoning_effort": "high"}),
    "responses": ("/v1/responses", {"input": "When?", "reasoning": {"effort": "high"}}),
    "messages": (
        "/v1/messages", {"messages": ASK, "max_tokens": 99, "thinking": {"type": "enabled", "budget_tokens": 64}}
    ),
    "ollama": ("/api/chat", {"messages": ASK, "think": True, "stream": False}),
}


@pytest.mark.parametrize("variable", SWITCHES)
def test_one_switch_reaches_the_templates_variable_from_every_api(variable: str) -> None:
    form = FORMATS["hermes"]
    marks = form.thought
    assert marks is not None
    off = "{% if " + SWITCHES[variable] + " %}<think>\\n\\n</think>\\n\\n{% endif %}"
    source = HEAD + "<assistant>" + off.replace("<think>\\n\\n</think>\\n\\n", "{{ '<think>\\n\\n</think>\\n\\n' }}")
    template = ChatTemplate({"default": source}, {})
    with looping(form, ["At nine."] * (len(OFF) + len(ON)), template=template) as (live, engine):
        for way, (path, body) in OFF.items():
            reply = live.post(path, {"model": MODEL, **body})
            assert reply.status == 200, (way, reply.body)
            assert marks.closed_by(engine.texts[-1]), (way, engine.texts[-1])
        for way, (path, body) in ON.items():
            reply = live.post(path, {"model": MODEL, **body})
            assert reply.status == 200, (way, reply.body)
            assert not marks.closed_by(engine.texts[-1]), (way, engine.texts[-1])


@pytest.mark.parametrize("variable", SWITCHES)
@every(THINKING)
def test_a_switch_ends_the_thought_in_the_marks_of_every_format(form: Format, variable: str) -> None:
    marks = form.thought
    assert marks is not None
    closed = (marks.opening + marks.closing).replace("\n", "\\n")
    source = HEAD + "<assistant>{% if " + SWITCHES[variable] + " %}{{ '" + closed + "' }}{% endif %}"
    template = ChatTemplate({"default": source}, {})
    parts = fake_parts(FakeEngine(), context_tokens=8000, template=template, format=form)
    for effort, ended in (("none", True), ("high", False)):
        body = {"model": MODEL, "messages": ASK, "reasoning_effort": effort}
        call = chat_call(json.dumps(body).encode(), parts.serving)
        assert marks.closed_by(call.turn.rendered_end) is ended, call.turn.rendered_end
