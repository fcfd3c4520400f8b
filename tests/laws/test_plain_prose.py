"""Comments of native sources and all texts of tests have the same plain sentences as the package; nothing is left."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.laws.prose import MOST_WORDS, NOTE, comments, docstrings, native_comments, sentences
from tests.laws.test_house import ROOT, short, text_of, tree_of

WORDS = re.compile(r"(?<![`\w.])(?:beside|behind|says)\b(?![`:(\w])")
"""The plain words are `next to`, `after` and `contains`. Names in code are not counted."""
FRAGMENT = re.compile(r"(?:of|whose|than|and|but) ", re.IGNORECASE)
"""A text that begins so has no subject: "of a block" does not tell what it counts."""
LEFT: dict[str, dict[str, int]] = {"notes": {}, "words": {}, "fragments": {}, "long sentences": {}}
"""What is left of each fault, by folder. Mend some and lower the number; never raise it."""


@cache
def python_texts(folder: str) -> list[tuple[Path, str]]:
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [(path, each) for path in paths for each in (*docstrings(tree_of(path)), *comments(text_of(path)))]


@cache
def native_texts(folder: str, *endings: str) -> list[tuple[Path, str]]:
    paths = sorted(each for each in (ROOT / folder).rglob("*") if each.suffix in endings)
    return [(path, each) for path in paths for each in native_comments(path.read_text())]


PLACES: dict[str, Callable[[], Iterable[tuple[Path, str]]]] = {
    "csrc": lambda: native_texts("csrc", ".h", ".cpp", ".cu", ".cuh"),
    "tests in C++": lambda: native_texts("tests", ".h", ".cpp", ".c"),
    "page": lambda: native_texts("src/twostroke/server/page", ".js"),
    "tests": lambda: python_texts("tests"),
}
ALSO: dict[str, Callable[[], Iterable[tuple[Path, str]]]] = {
    "src": lambda: python_texts("src"),
    "tools": lambda: python_texts("tools"),
}
"""For notes and sentences of the package, test_plain_english.py has the law."""
QUOTING = {"tests/laws/test_plain_english.py", "tests/laws/test_plain_prose.py"}
"""Files that quote what is not allowed."""


def number_of(fault: str, text: str) -> int:
    """How often a text has the fault. Formulas are no long sentences."""
    if fault == "long sentences":
        return sum(" = " not in each and len(each.split()) > MOST_WORDS for each in sentences(text))
    words = " ".join(text.split())
    if fault == "fragments":
        return int(FRAGMENT.match(words) is not None)
    return len({"notes": NOTE, "words": WORDS}[fault].findall(words))


@pytest.mark.parametrize("fault", LEFT)
def test_texts_are_plain(fault: str) -> None:
    places = {**PLACES, **(ALSO if fault in ("words", "fragments") else {})}
    counts: dict[str, int] = {}
    where: list[str] = []
    for name, texts in places.items():
        for path, text in texts():
            if (number := number_of(fault, text)) and short(path) not in QUOTING:
                counts[name] = counts.get(name, 0) + number
                where.append(f"{short(path)}: {' '.join(text.split())[:100]}")
    assert counts == LEFT[fault], where


def test_each_fault_is_found() -> None:
    assert number_of("notes", "rows: of a step; kind: the kind as given; at: by\nits name") == 2
    assert number_of("words", "It says so behind `behind` and beside. says: a name; x.says(row)") == 3
    assert [number_of("fragments", text) for text in ("of a block", "Whose rows", "Offers", "rows of it")] == [
        1,
        1,
        0,
        0,
    ]
    long = " ".join(["word"] * 31)
    assert number_of("long sentences", f"{long}. {long[5:]}.\n\n    {long}\n\nx = {long}") == 1


def test_comments_of_native_sources_are_found() -> None:
    text = (
        '// One line\n// and its end.\nint a = 1\'000;  // of it\n  // alone\nconst char* s = "// no";\n'
        "// A paragraph.\n//\n// Another one.\n/* A block. */\n}  // namespace x\n#endif  // See y\nauto t = `// no`;\n"
    )
    found = ["One line and its end.", "of it", "alone", "A paragraph.", "Another one. A block."]
    assert native_comments(text) == found
