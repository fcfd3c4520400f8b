"""Parts of a conversation with tools that a template leaves out are in the prompt in the format's own notation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.text.talk.reading import TOOLS, read
from twostroke.text.history.abilities import Abilities
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.own_words import offer
from twostroke.text.talk.speaker import Speaker
from twostroke.text.templates.chat_template import ChatTemplate

OFFER = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}"
END = "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
CALLS = (
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}"
)
NAMES_ALONE = "{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}"
NO_RESULTS = "{% for m in messages if m.role != 'tool' %}<{{ m.role }}>{{ m.content or '' }}"
CALLS_OR_TEXT = (
    "{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}" + CALLS + "{% else %}{{ m.content }}{% endif %}"
)
TEMPLATES: dict[str, tuple[str, Abilities]] = {
    "all": (OFFER + TURNS + CALLS + END, Abilities()),
    "no offer": (TURNS + CALLS + END, Abilities(offers=False)),
    "the word tool and no offer": ("{# tool tools #}" + TURNS + CALLS + END, Abilities(offers=False)),
    "no calls": (OFFER + TURNS + END, Abilities(calls=False)),
    "names of calls alone": (OFFER + TURNS + NAMES_ALONE + END, Abilities(calls=False)),
    "no results": (OFFER + NO_RESULTS + CALLS + END, Abilities(results=False)),
    "a call or a text": (OFFER + CALLS_OR_TEXT + END, Abilities()),
    "nothing": (NO_RESULTS + END, Abilities(offers=False, calls=False, results=False)),
}
OFFERED = [
    {"type": "function", "function": {"name": name, "description": f"about {name}", "parameters": schema}}
    for name, schema in TOOLS.items()
]
WORDS = ("rules", "When?", "I look.", "hours", "Monday", "nine", "bell", "rung", "about shelf", "copies")


def call(name: str, arguments: str, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "rules"},
    {"role": "user", "content": "When?"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [call("hours", '{"day": "Monday"}', "call_1"), call("bell", "{}", "call_2")],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "nine"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "rung"}]},
]


def prompt(template: str, form: str, hide: Any = str) -> str:
    speaker = Speaker(ChatTemplate({"default": template}, {}), FORMATS[form], tools=OFFERED, hide=hide)
    return speaker.prompt(HISTORY)


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_a_template_shows_is_tried(name: str) -> None:
    source, abilities = TEMPLATES[name]
    assert ChatTemplate({"default": source}, {}).abilities == abilities


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("form", FORMATS)
def test_nothing_of_a_conversation_is_left_out(form: str, name: str) -> None:
    text = prompt(TEMPLATES[name][0], form)
    assert [word for word in WORDS if word not in text] == []


@pytest.mark.parametrize("form", FORMATS)
def test_what_we_write_is_in_the_formats_own_notation(form: str) -> None:
    """The format's reader reads the call of the history back, and the offer has the format's marks."""
    own = FORMATS[form]
    text = prompt(TEMPLATES["nothing"][0], form)
    turns = text.split("<user>")[1].split("<assistant>")[1:]
    calls = [(name, json.loads(arguments)) for turn in turns for name, arguments, _ in read(own, [turn]).calls]
    assert calls == [("hours", {"day": "Monday"}), ("bell", {})]
    asked = offer(OFFERED, own)
    assert all(mark in asked for mark in own.calls[0].starts[:1])


def test_marks_of_ours_are_not_hidden_and_a_clients_are() -> None:
    """A client's text may contain the mark of a call, which stays hidden."""
    text = prompt(TEMPLATES["nothing"][0], "deepseek3", hide=lambda one: one.replace("I look.", "HIDDEN"))
    assert "HIDDEN" in text and "<｜tool▁calls▁begin｜>" in text


def test_results_of_one_turn_are_one_message_of_the_user() -> None:
    text = prompt(TEMPLATES["nothing"][0], "hermes")
    assert text.count("<user>") == 2
    assert "<tool_response>\nnine\n</tool_response>\n<tool_response>\nrung\n</tool_response>" in text


def test_a_conversation_without_tools_tries_nothing() -> None:
    class Untried:
        @property
        def abilities(self) -> Abilities:
            raise AssertionError

        def render(self, messages: Any, **_: Any) -> str:
            return str(messages[0]["content"])

    speaker = Speaker(Untried(), FORMATS["hermes"])
    assert speaker.prompt([{"role": "user", "content": "x"}]) == "x"
