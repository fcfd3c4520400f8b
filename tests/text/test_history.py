"""Histories of any form are rendered by templates that each refuse another part of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.text.test_chat_template import LLAMA2, LLAMA3, MISTRAL, QWEN, one
from twostroke.text.history.fit import LAST_RESORT
from twostroke.text.history.tool_turns import short_id
from twostroke.text.templates.messages import newest, normalized
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import MAX_NOTES, Notes, named

Messages = list[dict[str, Any]]
ASK: dict[str, Any] = {"role": "user", "content": "qask"}
CHATML = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}"
    "{% endfor %}"
)
ITEMS = (
    "{% for m in messages %}<{{ m.role }}>{% for c in m.tool_calls or [] %}[{{ c.function.name }}"
    "{% for k, v in c.function.arguments.items() %} {{ k }}={{ v }}{% endfor %}]{% endfor %}{{ m.content }}{% endfor %}"
)
TEXTS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
    "{{ '[' + c.function.name + ' ' + c.function.arguments + ']' }}{% endfor %}{% endfor %}"
)
SHORT_IDS = (
    "{% for m in messages %}<{{ m.role }}>{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}"
    "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}[{{ c.id }}]"
    "{% endfor %}{% if m.role == 'tool' %}({{ m.tool_call_id }}){% endif %}{{ m.content }}{% endfor %}"
)
ONE_CALL = (
    "{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}{% if m.tool_calls|length != 1 %}"
    "{{ raise_exception('This model only supports single tool-calls at once!') }}{% endif %}"
    "[{{ m.tool_calls[0].function.name }}]{% endif %}{{ m.content }}{% endfor %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "<{{ m.role }}>{{ m.content | trim }}{% endfor %}"
)
FIRST_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('at the beginning') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
NO_NULLS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content + '' }}{% for c in m.tool_calls or [] %}"
    "[{{ c.function.name }}]{% endfor %}{% endfor %}"
)
NOT_BESIDE = (
    "{% for m in messages %}{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('Cannot pass both') }}"
    "{% endif %}<{{ m.role }}>{{ m.thinking or '' }}{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}{% endfor %}"
)
TURNS = (
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'user' or (m.role == 'assistant' and not "
    "m.tool_calls) %}{% if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}"
    "{% set ns.n = ns.n + 1 %}{% endif %}<{{ m.role }}>{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}{% endfor %}"
)
PARTS = (
    "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}"
    "{% endfor %}{% endfor %}"
)
TEMPLATES = {
    "parts": PARTS,
    "chatml": CHATML,
    "items": ITEMS,
    "texts": TEXTS,
    "short ids": SHORT_IDS,
    "one call": ONE_CALL,
    "no system": NO_SYSTEM,
    "first system": FIRST_SYSTEM,
    "no nulls": NO_NULLS,
    "not beside": NOT_BESIDE,
    "turns": TURNS,
    "llama2": LLAMA2,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
    "qwen": QWEN,
}


def call(arguments: Any = "{}", name: str = "qtool", call_id: Any = "toolu_01A") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*each: dict[str, Any], content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(each), **more}


def got(content: Any = "qresult", call_id: Any = "toolu_01A") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
HISTORIES: dict[str, Messages] = {
    "broken arguments": [ASK, calls(call('{"cmd": "sle')), got()],
    "empty arguments": [ASK, calls(call("")), got()],
    "a list": [ASK, calls(call('["a"]')), got()],
    "a bare list": [ASK, calls(call(["a"])), got()],
    "a text": [ASK, calls(call('"a"')), got()],
    "a number": [ASK, calls(call(3)), got()],
    "null": [ASK, calls(call(None)), got()],
    "an object": [ASK, calls(call({"a": 1})), got()],
    "no name": [ASK, calls({"id": "x", "type": "function", "function": {"arguments": "{}"}}), got()],
    "no function": [ASK, calls({"id": "x"}), got()],
    "no id": [ASK, calls({"type": "function", "function": {"name": "f", "arguments": "{}"}}), got("r", None)],
    "no call": [ASK, {"role": "assistant", "content": "a", "tool_calls": "nothing"}, ASK],
    "calls of other things": [ASK, {"role": "assistant", "content": None, "tool_calls": ["x", None]}, ASK],
    "no calls": [ASK, {"role": "assistant", "content": None, "tool_calls": []}, ASK],
    "a text tool": [ASK, calls({"id": "x", "type": "custom", "custom": {"name": "p", "input": "t"}}), got("r", "x")],
    "a picture in a result": [ASK, calls(call()), got([{"type": "text", "text": "qresult"}, PICTURE]), ASK],
    "a picture in the last result": [ASK, calls(call()), got([PICTURE])],
    "an old picture": [{"role": "user", "content": [PICTURE]}, {"role": "assistant", "content": "a"}, ASK],
    "no result": [ASK, calls(call()), got(None)],
    "an empty result": [ASK, calls(call()), got([])],
    "an object as result": [ASK, calls(call()), got({"rows": [1]})],
    "a stray result": [ASK, {"role": "assistant", "content": "a"}, got("qresult", "other"), ASK],
    "a call without result": [ASK, calls(call()), ASK],
    "two calls": [ASK, calls(call(name="qa", call_id="1"), call(name="qb", call_id="2")), got("r", "2"), got("s", "1")],
    "a user behind a result": [ASK, calls(call()), got(), ASK],
    "two users": [ASK, ASK, {"role": "assistant", "content": "a"}, ASK],
    "two assistants": [ASK, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}, ASK],
    "an assistant first": [{"role": "assistant", "content": "a"}, ASK],
    "an empty answer": [ASK, {"role": "assistant", "content": ""}, ASK],
    "no answer": [ASK, {"role": "assistant"}, ASK],
    "a thought beside": [ASK, calls(call(), content="a", reasoning_content="qthought"), got()],
    "other roles": [{"role": "human", "content": "a"}, {"role": "model", "content": "b"}, {"role": 3}, ASK],
    "other contents": [{"role": "user", "content": 3}, {"role": "assistant", "content": [5, None, {"x": 1}]}, ASK],
    "systems": [{"role": "system", "content": "s"}, {"role": "developer", "content": "t"}, ASK],
    "a late system": [ASK, {"role": "assistant", "content": "a"}, {"role": "system", "content": "s"}, ASK],
    "systems alone": [{"role": "system", "content": "s"}, {"role": "system", "content": None}],
}


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("history", HISTORIES)
def test_every_history_is_rendered(template: str, history: str) -> None:
    text = one(TEMPLATES[template]).render(HISTORIES[history])
    asked = any(message.get("content") == "qask" for message in HISTORIES[history])
    assert "qask" in text or not asked


def shown(template: str, messages: Messages) -> tuple[str, tuple[str, ...]]:
    notes = Notes()
    return one(template).render(messages, notes=notes), notes.texts


def test_broken_arguments_are_shown_as_they_were_written() -> None:
    history = HISTORIES["broken arguments"]
    for template, found in ((CHATML, r'[qtool "{\"cmd\": \"sle"]'), (ITEMS, '[qtool arguments={"cmd": "sle]')):
        text, notes = shown(template, history)
        assert found in text and "qtool" in notes[0], text
    assert '[qtool {"cmd": "sle]' in shown(TEXTS, history)[0]


def test_arguments_are_objects_or_texts_as_the_template_takes_them() -> None:
    history = [ASK, calls(call('{"a": "é"}')), got()]
    assert shown(CHATML, history) == ('<user>qask<assistant>[qtool {"a": "é"}]<tool>qresult', ())
    assert shown(TEXTS, history) == ('<user>qask<assistant>[qtool {"a": "é"}]<tool>qresult', ())


def test_systems_are_joined_only_where_the_template_takes_one() -> None:
    systems = [{"role": "system", "content": "s"}, {"role": "system", "content": "t"}, ASK]
    assert shown(CHATML, systems) == ("<system>s<system>t<user>qask", ())
    text, notes = shown(FIRST_SYSTEM, systems)
    assert text == "<system>s\n\nt<user>qask" and len(notes) == 1
    text, notes = shown(FIRST_SYSTEM, HISTORIES["a late system"])
    assert text == "<system>s<user>qask<assistant>a<user>qask" and len(notes) == 1
    assert shown(NO_SYSTEM, systems)[0] == "<user>s\n\nt\n\nqask"
    assert "s\n\nt\n\nqask" in shown(MISTRAL, systems)[0], "the template would show the last one alone"


def test_ids_are_short_only_where_they_must_be() -> None:
    history = [ASK, calls(call()), got()]
    text, notes = shown(SHORT_IDS, history)
    assert text == f"<user>qask<assistant>[{short_id('toolu_01A')}]<tool>({short_id('toolu_01A')})qresult"
    assert notes == () and len(short_id("toolu_01A")) == 9 and short_id("abcdef123") == "abcdef123"


def test_two_calls_become_two_messages_each_with_its_result() -> None:
    text, notes = shown(ONE_CALL, HISTORIES["two calls"])
    assert (text, notes) == ("<user>qask<assistant>[qb]<tool>r<assistant>[qa]<tool>s", ())


def test_turns_alternate_where_they_must() -> None:
    assert shown(TURNS, HISTORIES["two users"])[0] == "<user>qask\n\nqask<assistant>a<user>qask"
    assert shown(CHATML, HISTORIES["two users"]) == ("<user>qask<user>qask<assistant>a<user>qask", ())
    text, notes = shown(TURNS, HISTORIES["a user behind a result"])
    assert text == "<user>qask<assistant>[qtool]<tool>qresult\n\nqask" and "after the tool's result" in notes[0]


def test_a_template_for_lists_of_parts_gets_them() -> None:
    assert shown(PARTS, [ASK, {"role": "assistant", "content": ""}, ASK]) == ("<user>qask<assistant><user>qask", ())


@pytest.mark.parametrize(
    ("part", "between"),
    [
        ("{{ p.text }}", ""),
        ("{{ p.text }}\n", "\n"),
        ("{% if not loop.first %} {% endif %}{{ p.text }}", " "),
        ("{{ p }}", "\n"),
    ],
)
def test_parts_are_joined_as_the_template_joins_them(part: str, between: str) -> None:
    """A template may print a list of parts as a value, or expect a text. It gets the parts joined by line ends."""
    each = "{% for p in m.content %}" + part + "{% endfor %}"
    source = "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}" + each
    source += "{% endif %}{% endfor %}"
    parts = [{"type": "text", "text": text} for text in ("qone", "qtwo")]
    result = [ASK, calls(call()), got(parts)]
    assert one(source).render([{"role": "user", "content": parts}]) == f"<user>qone{between}qtwo"
    assert one(source).render(result).endswith(f"qone{between}qtwo")
    assert one("{% for m in messages %}{{ m.content | trim }}{% endfor %}").render(
        [{"role": "user", "content": parts}]
    ) == "qone\nqtwo"


def test_a_template_that_takes_no_calls_gets_them_as_text() -> None:
    text, notes = shown(NO_SYSTEM, [ASK, calls(call('{"a": 1}'), content="I look."), got(), ASK])
    assert text == '<user>qask<assistant>I look.\n\n[qtool: {"a": 1}]<user>qresult\n\nqask'
    assert LAST_RESORT in notes


def test_a_part_that_was_left_out_has_a_line_in_its_place() -> None:
    text, notes = shown(CHATML, HISTORIES["an old picture"])
    assert text.startswith("<user>[A part of the type image_url was left out") and "image_url" in notes[0]


@pytest.mark.parametrize(
    "last",
    [
        {"role": "user", "content": [PICTURE]},
        {"role": "user", "content": None},
        {"role": "user", "content": 3},
        {"role": "king", "content": "x"},
        {"content": "x"},
    ],
)
def test_what_is_new_is_refused_where_it_cannot_be_honoured(last: dict[str, Any]) -> None:
    for history in ([], [ASK, {"role": "assistant", "content": "a"}], [ASK]):
        with pytest.raises(InvalidRequest):
            one(CHATML).render([*history, last])
        assert one(CHATML).render([*history, last, {"role": "assistant", "content": "a"}, ASK])


@pytest.mark.parametrize(
    "message",
    [
        {"reasoning_content": "qthought"},
        {"reasoning": "qthought"},
        {"thinking": "qthought"},
        {"reasoning": {"content": "qthought"}},
        {"reasoning_details": [{"type": "reasoning.text", "text": "qthought"}]},
        {"content": [{"type": "thinking", "thinking": "qthought", "signature": "s"}, {"type": "text", "text": "a"}]},
    ],
)
def test_a_thought_has_every_name(message: dict[str, Any]) -> None:
    (_, made, _) = normalized([ASK, {"role": "assistant", "content": "a", **message}, ASK])
    assert [made[name] for name in ("reasoning_content", "reasoning", "thinking")] == ["qthought"] * 3
    assert made["content"] == "a" and "reasoning_details" not in made


def test_the_newest_message_is_the_last_of_a_user() -> None:
    assert newest([ASK]) == 0 and newest([ASK, ASK]) == 1
    assert newest([ASK, {"role": "system", "content": "s"}]) == 0
    assert newest([ASK, calls(call()), got()]) is None and newest([ASK, {"role": "assistant"}]) is None


def test_notes_are_few_short_and_safe_in_a_header() -> None:
    notes = Notes()
    for number in range(MAX_NOTES + 3):
        notes.add(f"note {number}; \r\n é" + "x" * 500)
        notes.add(f"note {number}; \r\n é" + "x" * 500)
    assert len(notes.texts) == MAX_NOTES + 1 and notes.texts[-1] == "and 6 more"
    assert all(text.isascii() and ";" not in text and "\n" not in text for text in notes.texts)
    assert named("a;\r\nb" + "c" * 99) == "a???b" + "c" * 43


@pytest.mark.parametrize(("message", "words"), [({}, "has no role"), ({"role": "wizard"}, "is 'wizard'")])
def test_a_last_message_needs_a_role(message: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        normalized([{"content": "hi", **message}])
