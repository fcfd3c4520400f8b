"""Texts name their subject. A text that begins with "Of" leaves out the noun, and the reader must guess it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.laws.test_house import ROOT, short, text_of, tree_of

FOLDERS = ("src", "tools", "tests")
MAY_BEGIN = re.compile(r"Of[\s\\]")
"""The source of every text that begins with "Of" contains this; files without it are not parsed."""


def riddles(tree: ast.Module) -> list[int]:
    """The lines of strings that begin with "Of": docstrings, texts after values, helps and messages."""
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return sorted(node.lineno for node in strings if re.match(r"\s*Of\s", node.value))


def comment_riddles(text: str) -> list[int]:
    """The lines of C++ comments that begin with "Of" and do not continue a sentence of the comment above."""
    lines = [line.strip() for line in text.splitlines()]
    begins = zip(range(1, len(lines) + 1), ["", *lines], lines, strict=False)
    return [number for number, above, line in begins if line.startswith("// Of ") and not above.startswith("//")]


def test_riddles_are_found() -> None:
    """The strings are in a class, after a value, after a line break, and in a call. Other first words are allowed."""
    written = 'class Room:\n    """Of a step."""\n\nMOST = 3\n"""\nOf each."""\nf(help=f"Of {MOST}.")\n"""Often."""\n'
    assert riddles(ast.parse(written)) == [2, 5, 7] and MAY_BEGIN.search(written)
    assert comment_riddles("int a;\n// Of a panel.\nint b;\n// The bytes\n// Of a group.\n// Often.\n") == [2]


def test_no_text_begins_with_of() -> None:
    paths: list[Path] = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    written = [path for path in paths if MAY_BEGIN.search(text_of(path))]
    found = [f"{short(path)}:{line}" for path in written for line in riddles(tree_of(path))]
    native = [path for ending in ("*.cpp", "*.h") for path in sorted((ROOT / "csrc").rglob(ending))]
    found += [f"{short(path)}:{line}" for path in native for line in comment_riddles(path.read_text())]
    assert found == [], 'say what it is: "The score of each pair", not "Of each pair"'
