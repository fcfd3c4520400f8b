"""Docstrings and comments name what they are about, and their sentences are short: what is left only shrinks."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator

from tests.laws.prose import MOST_WORDS, NOTE, comments, docstrings, sentences
from tests.laws.test_house import MODULES, SOURCE, text_of, tree_of

NOTES: dict[str, int] = {}
"""Notes without a noun that are left, by package. Mend some and lower the number; never raise it."""
LONG_SENTENCES: dict[str, int] = {}
"""Sentences of more than MOST_WORDS words that are left, by package. Mend some and lower the number; never raise it."""
BESIDE = re.compile(r"(?<!`)\bbeside\b(?![`:(])")
"""`next to` is the plain word; a parameter of this name is not meant."""

Count = Callable[[str, ast.Module], int]


def count_notes(text: str, tree: ast.Module) -> int:
    """How many notes without a noun the docstrings and comments have."""
    if not NOTE.search(re.sub(r"\s+(?:# )?", " ", text)):
        return 0
    texts = [*docstrings(tree), *(comments(text) if "#" in text else ())]
    return sum(len(NOTE.findall(" ".join(each.split()))) for each in texts)


def public_docstrings(tree: ast.AST) -> Iterator[str]:
    """Docstrings of the module and of its public classes, functions and methods."""
    nodes = [node for node in ast.iter_child_nodes(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    if isinstance(tree, ast.Module | ast.ClassDef | ast.FunctionDef):
        yield ast.get_docstring(tree) or ""
    for node in nodes:
        if not node.name.startswith("_") and not isinstance(tree, ast.FunctionDef):
            yield from public_docstrings(node)


def count_long_sentences(_text: str, tree: ast.Module) -> int:
    """How many sentences of public docstrings have more than MOST_WORDS words. Formulas are not counted."""
    found = [each for text in public_docstrings(tree) for each in sentences(text) if " = " not in each]
    return sum(len(each.split()) > MOST_WORDS for each in found)


def by_package(count: Count) -> dict[str, int]:
    """The sums of all files, by the package at the top that they belong to."""
    found: Counter[str] = Counter()
    for path in MODULES:
        found[path.relative_to(SOURCE).parts[0]] += count(text_of(path), tree_of(path))
    return {name: number for name, number in sorted(found.items()) if number}


def faults(found: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """Where a package has more than it may, or fewer than it is allowed."""
    names = sorted({*found, *allowed})
    pairs = [(name, found.get(name, 0), allowed.get(name, 0)) for name in names]
    more = [f"{name}: {has}, and only {may} may be left: mend the new ones" for name, has, may in pairs if has > may]
    return more + [f"{name}: {has} are left of {may}: lower it" for name, has, may in pairs if has < may]


def test_notes_without_a_noun_are_found() -> None:
    """In docstrings, texts after values and comments, also across lines; code and other notes are not meant."""
    text = (
        '"""A step. parts_s: of\nit. rows: as asked."""\n'
        "MOST = 3\n"
        '"""most: by\ndefault."""\n'
        "# One line, rows:\n# of a step\n"
        'x = {"a: of": 1}  # left: of it\n'
        'y = "name: of a text"\n'
        "class Room:\n"
        '    """rows: the rows of a step. times: one row. The order: oftener."""\n'
    )
    assert count_notes(text, ast.parse(text)) == 5


def test_long_sentences_are_found() -> None:
    """In public docstrings alone, each sentence for itself; formulas are not counted."""
    long, short = " ".join(["word"] * 31) + ".", " ".join(["word"] * 30) + "."
    text = (
        f'"""{long} {short}\n\n    {long}\n\n- {short}\n- {long}\n"""\n'
        f'class Room:\n    """{short} {short}"""\n    def go(self):\n        """{long}"""\n'
        f'def _hidden():\n    """{long}"""\n'
        f'def formula():\n    """x = {long}"""\n'
    )
    assert count_long_sentences(text, ast.parse(text)) == 3


def test_allowed_numbers_only_shrink() -> None:
    assert faults({"ops": 2}, {"ops": 2}) == []
    assert faults({"ops": 3}, {"ops": 2}) == ["ops: 3, and only 2 may be left: mend the new ones"]
    assert faults({}, {"ops": 2}) == ["ops: 0 are left of 2: lower it"]
    assert faults({"new": 1}, {}) == ["new: 1, and only 0 may be left: mend the new ones"]


def test_notes_name_their_noun() -> None:
    assert faults(by_package(count_notes), NOTES) == [], 'write "rows: the rows of a step", not "rows: of a step"'


def count_beside(text: str, tree: ast.Module) -> int:
    """How often docstrings and comments use the word."""
    return sum(len(BESIDE.findall(each)) for each in (*docstrings(tree), *comments(text)))


def test_things_are_next_to_each_other() -> None:
    planted = '"""One beside another. beside: `beside` rows."""  # beside it'
    assert count_beside(planted, ast.parse(planted)) == 2
    assert by_package(count_beside) == {}, "write next to"


def test_sentences_are_short() -> None:
    assert faults(by_package(count_long_sentences), LONG_SENTENCES) == [], f"at most {MOST_WORDS} words a sentence"
