"""The pages of docs/ and of the top folder have the same plain sentences as the sources; nothing is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.laws.prose import MOST_WORDS, page_sentences
from tests.laws.test_house import ROOT, short
from tests.laws.test_plain_prose import WORDS

PAGES = (*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md")))


def long_sentences(text: str) -> list[str]:
    """The sentences of a page that have too many words. Formulas are not counted."""
    return [each for each in page_sentences(text) if " = " not in each and len(each.split()) > MOST_WORDS]


@pytest.mark.parametrize("path", PAGES, ids=short)
def test_sentences_of_pages_are_short(path: Path) -> None:
    assert long_sentences(path.read_text()) == [], "for a generated page change its generator in tools/pages"


@pytest.mark.parametrize("path", PAGES, ids=short)
def test_words_of_pages_are_plain(path: Path) -> None:
    found = [each for each in page_sentences(path.read_text()) if WORDS.search(each)]
    assert found == [], "write `next to`, `after` and `contains`"


def test_long_sentences_of_a_page_are_found() -> None:
    """In paragraphs, items, headings, quotations and cells; not in code, comments or formulas."""
    long, short_one = " ".join(["word"] * 31), " ".join(["word"] * 30)
    fields = ", ".join(["`a b c`"] * 40)
    text = (
        f"# {long}\n\n{short_one}. {long}.\nMore.\n\n- {short_one}.\n- {long}\n  1. {long}\n     {short_one}\n"
        f"> {long}\n"
        f"| {short_one} | {long} |\n| {short_one}; {short_one} | {fields} |\n\n"
        f"```\n{long}\n```\n\n    {long}\n    {long}\n\n<!-- {long} -->\nx = {long}\n\n[{short_one}](a b c) {fields}"
    )
    assert [len(each.split()) for each in long_sentences(text)] == [31, 31, 31, 61, 31, 31, 31]
