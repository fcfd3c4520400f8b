"""The format of a model: found by its template's text, found by its vocabulary, or derived and checked."""

from __future__ import annotations

import pytest

from tests.text.talk.reading import read, valued, written
from tests.text.talk.templates import CALLS, OPENINGS, UNREADABLE, template
from twostroke.text.talk.ask import asked_format, lines_of
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.learn.find import find_format
from twostroke.text.talk.learn.probe import FIRST, TemplateProbe
from twostroke.text.templates.chat_template import ChatTemplate
from twostroke.types.errors import ConfigError

PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}bot:"


class Words:
    """A vocabulary of these tokens, all special."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        self.special_ids = frozenset(range(len(texts)))

    def id_of(self, token: str) -> int | None:
        return self._texts.index(token) if token in self._texts else None

    def token_text(self, token_id: int) -> str:
        return self._texts[token_id]


@pytest.mark.parametrize("name", CALLS)
def test_a_format_that_nobody_knows_is_derived(name: str) -> None:
    form = find_format(template(CALLS[name]), Words("</s>"))
    assert form.name == "derived" and "read back at every cut" in form.note
    assert form.thought is not None and form.thought.opening.strip() == "<muse>"
    calls = [("shelf", {"title": "E 'm' [a]", "copies": 2}), ("bell", {})]
    found = valued(read(form, ["<muse>Hm.</muse>\nI look." + written(form, calls)]))
    assert [each[:2] for each in found.calls] == calls
    assert (found.content, found.thought) == ("I look.", "Hm.")


@pytest.mark.parametrize("name", CALLS)
def test_a_derived_format_writes_what_its_template_writes(name: str) -> None:
    """A call of the format's own writer is in the template's text, and is read back."""
    made = template(CALLS[name], thinks=False)
    form = find_format(made, Words("</s>"))
    turn = TemplateProbe(made).turn(FIRST) or ""
    assert written(form, list(FIRST.calls)).strip() in turn


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_does_not_come_back_is_not_used(name: str) -> None:
    form = find_format(template(UNREADABLE[name]), Words("</s>"))
    assert form.name == "common"


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.vocabulary])
def test_the_vocabulary_tells_the_format_of_a_template_without_calls(name: str) -> None:
    found = find_format(ChatTemplate({"default": PLAIN}, {}), Words(*FORMATS[name].vocabulary))
    assert set(found.vocabulary) <= set(FORMATS[name].vocabulary) and found.vocabulary
    assert "vocabulary" in found.note


def test_an_offer_tells_the_format() -> None:
    offer = "{% if tools %}Answer with <TOOLCALL>[...]</TOOLCALL>.{% endif %}" + PLAIN
    assert find_format(ChatTemplate({"default": offer}, {}), Words()).name == "nemotron"


def test_a_mark_in_a_comment_tells_nothing() -> None:
    """The source of the template is not searched: a mark may be there for the history, or in a comment."""
    found = find_format(ChatTemplate({"default": "{# <|tool_calls_section_begin|> #}" + PLAIN}, {}), Words())
    assert found.name == "common" and found.thought is None


@pytest.mark.parametrize("shown", ["<think>\n", "<think></think>", "<think>\n\n</think>\n\n"])
def test_the_prompts_end_shows_that_a_model_thinks(shown: str) -> None:
    found = find_format(ChatTemplate({"default": PLAIN + shown}, {}), Words())
    assert found.thought is not None and found.thought.closing.strip() == "</think>"


def test_a_switch_shows_that_a_model_thinks() -> None:
    switch = "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    found = find_format(ChatTemplate({"default": PLAIN + switch}, {}), Words())
    assert found.thought is not None


def test_a_template_that_drops_old_thoughts_shows_it() -> None:
    dropping = "{% for m in messages %}{{ m.role }}: {{ m.content.split('</think>')[-1] }}\n{% endfor %}bot:"
    found = find_format(ChatTemplate({"default": dropping}, {}), Words())
    assert found.thought is not None


def test_a_template_that_refuses_everything_has_a_format() -> None:
    refusing = "{{ raise_exception('no') }}"
    assert find_format(ChatTemplate({"default": refusing}, {}), Words()).name == "common"


def test_a_user_may_name_the_formats() -> None:
    found = FORMATS["hermes"]
    assert asked_format(found) is found
    named = asked_format(found, "llama3", "mistral")
    assert named.calls == FORMATS["llama3"].calls and named.thought == FORMATS["mistral"].thought
    assert asked_format(found, None, "none").thought is None
    assert asked_format(found, "harmony").messages is not None
    with pytest.raises(ConfigError, match="--tool-format 'nope'"):
        asked_format(found, "nope")
    with pytest.raises(ConfigError, match="no marks of thoughts"):
        asked_format(found, None, "llama3")


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_people_can_read_what_was_found(name: str) -> None:
    said = dict(lines_of(FORMATS[name]))
    assert said["format"] == name and "NAME" in said["call"] and set(said) >= {"found", "thought", "ends"}


@pytest.mark.parametrize("name", OPENINGS)
def test_a_turn_is_found_however_the_opening_stands(name: str) -> None:
    """A prompt and a turn may begin a mark alike, and a template may write more after every conversation."""
    form = find_format(ChatTemplate({"default": OPENINGS[name]}, {}), Words("<|end_of_t|>", "<|turn|>", "<|says|>"))
    assert form.name == "derived"
    (call,) = form.calls
    assert (call.open.strip(), call.close.strip()) == ("<act>", "</act>") and not call.begin and not call.end
