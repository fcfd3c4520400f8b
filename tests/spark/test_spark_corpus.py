"""The corpus parser: what it reads, and the errors that it reports."""

from pathlib import Path

import pytest
from tools.spark.corpus import CorpusError, Entry, check, held_out_set, load, parse_text
from tools.spark.normal import normalise


def entry_text(name: str = "first", held_out: str = "H: what would one be?", questions: int = 10) -> str:
    """A well-formed entry as text."""
    lines = [f"## {name}"] + [f"Q: {name} question {i}?" for i in range(questions)]
    return "\n".join([*lines, held_out, f"A: The answer to {name}."]) + "\n"


def test_parses_entries_in_order() -> None:
    found = parse_text(entry_text("first") + "\n\n" + entry_text("second", "H: another?"), "a.txt")
    assert [entry.id for entry in found] == ["first", "second"]
    assert found[0].questions[3] == "first question 3?"
    assert found[0].held_out == ["what would one be?"]
    assert found[1].answer == "The answer to second."
    assert found[1].where.startswith("a.txt:1")
    check(found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Q: lost\n", "x.txt:1: 'Q: lost' stands outside"),
        ("## a\nB: what\n", "x.txt:2: expected"),
        ("## a\nQ:\n", "x.txt:2: 'Q:' has no text"),
        ("## a\nA: one\nA: two\n", "x.txt:3: entry 'a' has a second 'A:'"),
        ("## a\nQ: na\u00efve\n", "x.txt:2: character '\u00ef' is not ASCII"),
        ("## a\n## b\n", "x.txt:2: no blank line"),
    ],
)
def test_parse_errors_name_file_and_line(text: str, message: str) -> None:
    with pytest.raises(CorpusError) as caught:
        parse_text(text, "x.txt")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (entry_text(questions=9), "has 9 'Q:' lines"),
        (entry_text(held_out="Q: none is held out"), "has 0 'H:' lines"),
        (entry_text(held_out="H: First QUESTION 3"), "is trained on"),
        (entry_text() + "\n" + entry_text(), "is taken by"),
        (entry_text() + "\n" + entry_text("b").replace("b question 1?", "first  question 1"), "also leads to"),
    ],
)
def test_check_errors(text: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        check(parse_text(text, "x.txt"))


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no entries"):
        load(tmp_path)


def test_the_corpus_is_big_enough(entries: list[Entry]) -> None:
    assert len(entries) >= 300
    assert len(held_out_set(entries)) >= 60


def test_normalise() -> None:
    assert normalise("  What's *TTFT*?? ") == "what s ttft"
    assert normalise("KV-cache, please!") == normalise("kv cache please")
