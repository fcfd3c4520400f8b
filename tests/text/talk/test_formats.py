"""Every format by hand: its examples, every cut of them, damaged ones, and the parts of their calls."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.text.talk.reading import TOOLS, cut, expected, pieces_of, read, valued, written
from twostroke.text.talk.calling import Tools
from twostroke.text.talk.catalog import EXAMPLES, FORMATS
from twostroke.text.talk.format import CallForm, Example, Format
from twostroke.text.talk.learn.round_trip import message_of
from twostroke.text.talk.pieces import CallArguments, CallBegan, Said, Thought
from twostroke.text.talk.reader import TurnReader

CASES = [
    pytest.param(FORMATS[name], example, id=f"{name}-{place}")
    for name, examples in EXAMPLES.items()
    for place, example in enumerate(examples)
]
CALLING = [name for name, form in FORMATS.items() if form.calls]


def test_every_format_has_examples_and_one_of_them_calls() -> None:
    assert set(EXAMPLES) == set(FORMATS)
    assert all(any(example.calls for example in examples) for examples in EXAMPLES.values())


@pytest.mark.parametrize(("form", "example"), CASES)
def test_an_example_gives_its_message(form: Format, example: Example) -> None:
    assert valued(read(form, [example.raw], example.prompt)) == expected(example)


@pytest.mark.parametrize(("form", "example"), CASES)
def test_no_cut_changes_the_message(form: Format, example: Example) -> None:
    whole = pieces_of(form, [example.raw], example.prompt)
    assert pieces_of(form, example.raw, example.prompt) == whole
    for place in range(1, len(example.raw)):
        assert pieces_of(form, cut(example.raw, [place]), example.prompt) == whole, example.raw[:place]


@pytest.mark.parametrize(("form", "example"), CASES)
def test_what_is_out_is_a_beginning_of_the_message(form: Format, example: Example) -> None:
    """Each beginning is read as far as it is certain, and never taken back."""
    whole = read(form, [example.raw], example.prompt)
    reader, made = TurnReader(form, Tools(TOOLS), example.prompt), list[Any]()
    for character in example.raw:
        made += reader.feed(character)
        now = message_of(made)
        assert whole.content.startswith(now.content) and whole.thought.startswith(now.thought)
        for found, final in zip(now.calls, whole.calls, strict=False):
            assert (found[0], found[2]) == (final[0], final[2]) and final[1].startswith(found[1])
        assert len(now.calls) <= len(whole.calls)


@pytest.mark.parametrize(("form", "example"), CASES)
def test_a_damaged_answer_is_read_and_no_cut_changes_it(form: Format, example: Example) -> None:
    raw = example.raw
    damaged = [raw[:place] for place in range(len(raw))]
    for place in range(0, len(raw), 3):
        damaged += [raw[:place] + raw[place + 1 :], raw[:place] + raw[place] + raw[place:]]
        damaged.append(raw[:place] + "\N{SNOWMAN}" + raw[place + 1 :])
    for text in damaged:
        whole = pieces_of(form, [text], example.prompt)
        assert pieces_of(form, cut(text, [len(text) // 3, len(text) // 2]), example.prompt) == whole
        begun = [piece.index for piece in whole if isinstance(piece, CallBegan)]
        assert begun == list(range(len(begun)))
        assert all(piece.name in TOOLS for piece in whole if isinstance(piece, CallBegan))


WORDS = ["I look. ", "\n", " ", "<", "[", "{", "bell", "hours", "(", '"', "\\", "}", "]", ">", "\u00a0", "\N{SNOWMAN}"]


@given(st.data())
def test_any_text_in_any_cut_gives_the_same(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FORMATS)))
    form, examples = FORMATS[name], EXAMPLES[name]
    parts = [*sorted(form.texts), *(example.raw for example in examples), *WORDS]
    text = "".join(data.draw(st.lists(st.sampled_from(parts) | st.text(max_size=8), max_size=8)))
    prompt = data.draw(st.sampled_from(sorted({example.prompt for example in examples})))
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=30))
    whole = pieces_of(form, [text], prompt)
    assert pieces_of(form, cut(text, cuts), prompt) == whole
    begun = -1
    for piece in whole:
        begun = piece.index if isinstance(piece, CallBegan) else begun
        assert not isinstance(piece, CallArguments) or piece.index == begun


@given(
    st.sampled_from(sorted(FORMATS)),
    st.text("ab .,:;!?\n\u00a0x", max_size=60),
    st.lists(st.integers(0, 60), max_size=9),
)
def test_plain_words_are_never_changed(name: str, text: str, cuts: list[int]) -> None:
    form = FORMATS[name]
    if form.messages is None:
        said = "".join(piece.text for piece in pieces_of(form, cut(text, cuts)) if isinstance(piece, Said))
        assert said == text


@pytest.mark.parametrize("name", CALLING)
def test_without_tools_nothing_is_a_call(name: str) -> None:
    for example in EXAMPLES[name]:
        assert not read(FORMATS[name], [example.raw], example.prompt, {}).calls


@pytest.mark.parametrize("name", CALLING)
def test_what_is_written_is_read(name: str) -> None:
    """message -> notation's write -> reader -> the same message: names, quotes, brackets, line ends, marks in texts."""
    form = FORMATS[name]
    for calls in (
        [("shelf", {"title": 'E "m" [a] {b}', "copies": 2})],
        [("shelf", {"due": True, "place": {"rows": [1, 2]}}), ("bell", {})],
        [("hours", {"day": "a\nb 'c' \\ d"}), ("hours", {"day": ""})],
    ):
        if form.messages is not None:
            calls = calls[:1]
        text = written(form, calls)
        found = valued(read(form, ["I look." + text if not form.calls[0].bare and not form.messages else text]))
        assert [(each, arguments) for each, arguments, _ in found.calls] == calls, text


@pytest.mark.parametrize("name", CALLING)
def test_a_text_argument_streams(name: str) -> None:
    """A long text comes out before it is complete, except where a form must wait for the id or for types."""
    form = FORMATS[name]
    if name in WAITING:
        return
    text = written(form, [("hours", {"day": "word " * 40})])
    pieces = pieces_of(form, [text[: len(text) // 2]])
    assert any(isinstance(piece, CallArguments) and "word word" in piece.text for piece in pieces)


WAITING: set[str] = {"mistral_list"}


def test_a_name_that_is_not_offered_leaves_the_text_whole() -> None:
    for name in CALLING:
        form = FORMATS[name]
        if form.messages is None:
            text = written(form, [("qz", {"day": "Mon"})])
            found = read(form, [text])
            assert not found.calls and found.content.strip() == text.strip(), name


def test_a_thought_may_speak_of_marks() -> None:
    for name in CALLING:
        form = FORMATS[name]
        if form.thought is None or form.calls[0].bare:
            continue
        mark = form.calls[0].starts[0]
        text = f"One writes {mark} here.{form.thought.closing}At nine."
        found = read(form, [text], form.thought.opening)
        assert found.thought == f"One writes {mark} here." and found.content == "At nine.", name


def test_a_thought_that_is_never_closed_ends_at_a_call() -> None:
    for name in CALLING:
        form = FORMATS[name]
        if form.thought is None or form.calls[0].bare:
            continue
        found = read(form, ["Hm." + written(form, [("bell", {})])], form.thought.opening)
        assert found.thought == "Hm." and [each[0] for each in found.calls] == ["bell"], name


@pytest.mark.parametrize("name", CALLING)
def test_a_long_argument_takes_as_many_steps_for_each_character(name: str) -> None:
    """Steps are counted, not time: a text ten times as long needs about ten times as many."""
    form = FORMATS[name]

    def steps(length: int) -> int:
        text = written(form, [("hours", {"day": "word " * length})])
        return counted(lambda: pieces_of(form, cut(text, range(0, len(text), 7))))

    assert steps(400) < 14 * steps(40)


@pytest.mark.parametrize("name", CALLING)
def test_many_beginnings_of_a_mark_take_as_many_steps_each(name: str) -> None:
    form = FORMATS[name]
    marks = form.calls[0].starts or ("{",)

    def steps(count: int) -> int:
        return counted(lambda: pieces_of(form, [marks[0]] * count))

    assert steps(1000) < 14 * steps(100)


def counted(work: Any) -> int:
    """The number of function calls that the work makes."""
    count = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_a_closing_mark_alone() -> None:
    """It ends a thought that the prompt opened. It is dropped where the prompt closed the thought, and before all
    text."""
    form = FORMATS["hermes"]
    assert read(form, ["Hm.</think>So."], "<think>\n").thought == "Hm."
    assert read(form, ["</think>So."], "</think>\n\n").content == "So."
    assert read(form, ["\n</think>\n\nSo."]).content == "So."
    assert read(form, ["Use <think> and </think>."], "</think>").content == "Use <think> and ."


def test_a_plain_form_reads_nothing() -> None:
    form = structs.replace(FORMATS["hermes"], calls=(), thought=None)
    assert pieces_of(form, ["<think>a</think> <tool_call>"]) == [Said("<think>a</think> <tool_call>")]


def test_arguments_come_out_as_they_were_written() -> None:
    arguments = '{"day" :  "M\\u006fn", "x":[1e5,-0.5,null,true]}'
    text = f'<tool_call>{{"name":"hours","arguments":{arguments}}}</tool_call>'
    assert read(FORMATS["hermes"], text).calls == (("hours", arguments, ""),)


def test_numbers_that_came_as_text_are_the_clients_to_judge() -> None:
    text = '<tool_call>{"name": "shelf", "arguments": {"copies": "2"}}</tool_call>'
    assert json.loads(read(FORMATS["hermes"], [text]).calls[0][1]) == {"copies": "2"}


def test_a_thought_is_trimmed_and_counted_as_one() -> None:
    assert pieces_of(FORMATS["hermes"], "<think>\n a b \n</think>\n\nSo.") == [Thought("a b"), Said("So.")]


def test_bare_is_what_no_mark_tells() -> None:
    assert CallForm(FORMATS["llama3"].calls[0].notation).bare and not FORMATS["hermes"].calls[0].bare
