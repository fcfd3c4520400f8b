"""Laws of every format: text around calls is kept, names come whole, and no markup is content."""

from __future__ import annotations

import json

import pytest

from tests.text.talk.reading import TOOLS, pieces_of, read, written
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.format import Format
from twostroke.text.talk.notations.tagged import TaggedNotation
from twostroke.text.talk.pieces import CallBegan

CALLS = [("shelf", {"title": 'a "b" </x> [c]\n{d}', "copies": 7, "due": True, "place": {"rows": [1, 2]}}), ("bell", {})]
MARKED = [form for form in FORMATS.values() if not (form.messages or form.calls[0].bare)]


def valued(form: Format, text: str, prompt: str = "") -> tuple[str, str, list[tuple[str, object]]]:
    turn = read(form, [text], prompt)
    return turn.content, turn.thought, [(name, json.loads(arguments)) for name, arguments, _ in turn.calls]


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_arguments_have_the_types_of_the_schema(form: Format) -> None:
    assert valued(form, written(form, CALLS)) == ("", "", CALLS)


@pytest.mark.parametrize("form", MARKED, ids=lambda form: form.name)
def test_text_around_calls_is_kept(form: Format) -> None:
    """White space next to a mark belongs to the form. Nothing else is lost, and nothing after the last call."""
    content, _, calls = valued(form, f"I look.{written(form, CALLS)}Now I wait.")
    assert calls == CALLS
    assert content.replace("\n", "") == "I look.Now I wait."


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_name_comes_out_whole(form: Format) -> None:
    tools = {"run_in_terminal": TOOLS["hours"], "run_in": TOOLS["hours"]}
    text = written(form, [("run_in_terminal", {"day": "Mon"})])
    names = [piece.name for piece in pieces_of(form, text, tools=tools) if isinstance(piece, CallBegan)]
    assert names == ["run_in_terminal"]


@pytest.mark.parametrize("form", [form for form in MARKED if form.thought], ids=lambda form: form.name)
def test_a_thought_that_is_not_closed_ends_at_a_call(form: Format) -> None:
    marks = form.thought
    assert marks is not None
    assert valued(form, f"{marks.opening}Which one?{written(form, CALLS)}") == ("", "Which one?", CALLS)
    assert valued(form, f"Which one?{written(form, CALLS)}", marks.opening) == ("", "Which one?", CALLS)


@pytest.mark.parametrize("form", [form for form in FORMATS.values() if form.thought], ids=lambda form: form.name)
def test_marks_of_thoughts_are_never_content(form: Format) -> None:
    marks = form.thought
    assert marks is not None
    opening, closing = marks.opening.strip(), marks.closing.strip()
    off = valued(form, f"{closing}\n\nAt nine.", marks.opening + marks.closing)
    assert off[0].strip() == "At nine." and not off[1]
    for text in (f"{opening}{closing}At nine.", f"{marks.opening}Hm.{marks.closing}At nine."):
        content, _, _ = valued(form, text)
        assert content.strip() == "At nine."


@pytest.mark.parametrize("form", MARKED, ids=lambda form: form.name)
def test_a_call_that_breaks_off_stays_as_far_as_it_came(form: Format) -> None:
    """No cut of a turn turns its markup into content, once the call's name is out."""
    whole = written(form, [("hours", {"day": "Monday"})])
    for end in range(len(whole)):
        turn = read(form, [whole[:end]])
        assert not (turn.calls and turn.content.strip()), whole[:end]
        assert [name for name, _, _ in turn.calls] in ([], ["hours"])


TAGGED = [form for form in MARKED if isinstance(form.calls[0].notation, TaggedNotation)]
SHAPES = ("{}", "a {} b", "a{}b", "see\n{}\nend", "{}b", "a\n{}")
NOTED = {"type": "object", "properties": {"note": {"type": "string"}}}
SHELF = {"type": "object", "properties": {**TOOLS["shelf"]["properties"], "place": NOTED}}


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_value_may_contain_every_mark_of_its_format(form: Format) -> None:
    """An agent that edits files about tools writes such values. At every cut they are the same."""
    tools = {**TOOLS, "shelf": SHELF}
    for mark in sorted(form.texts):
        for shape in SHAPES:
            text = shape.replace("{}", mark)
            for given in ({"title": text, "copies": 7}, {"copies": 7, "title": text}, {"place": {"note": text}}):
                calls = [("shelf", given), ("bell", {})]
                raw = written(form, calls)
                turn = read(form, [raw], tools=tools)
                assert [(name, json.loads(arguments)) for name, arguments, _ in turn.calls] == calls, raw
                assert not (turn.content.strip() or turn.thought)
        assert read(form, raw, tools=tools) == turn


@pytest.mark.parametrize("form", TAGGED, ids=lambda form: form.name)
def test_a_value_that_a_model_forgot_to_close_ends_with_its_call(form: Format) -> None:
    notation = form.calls[0].notation
    assert isinstance(notation, TaggedNotation)
    calls = [("shelf", {"title": "Emma", "copies": 7})]
    raw = written(form, calls).replace(notation.value_close, "")
    assert valued(form, raw) == ("", "", calls)
