"""Docstrings say what a function or a value is: one that begins with "Of" leaves out the noun, and the reader guesses."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.laws.test_house import ROOT, short, tree_of

FOLDERS = ("src", "tools", "tests")


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the text of each string that stands alone: of modules, classes, functions and the values above."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


def riddles(tree: ast.Module) -> list[int]:
    """The lines of docstrings that begin with "Of"."""
    return sorted(line for line, text in docstrings(tree) if text.split(maxsplit=1)[:1] == ["Of"])


def test_riddles_are_found() -> None:
    """In a class, behind a value, behind a line break; other first words are none."""
    written = 'class Room:\n    """Of a step."""\n\nMOST = 3\n"""\nOf each."""\nBAR = 1\n"""Often enough."""\n'
    assert riddles(ast.parse(written)) == [2, 5]


def test_no_docstring_begins_with_of() -> None:
    paths: list[Path] = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [f"{short(path)}:{line}" for path in paths for line in riddles(tree_of(path))]
    assert found == [], 'say what it is: "The score of each pair", not "Of each pair"'
