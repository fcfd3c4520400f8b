"""The laws of docs/ARCHITECTURE.md that a script can hold: sizes, openings, one reader of the environment, no eval."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "twostroke"
DRIVERS = SOURCE / "bench" / "peers" / "drivers"  # run by other engines' Python, not by ours
MODULES = sorted(path for path in SOURCE.rglob("*.py") if DRIVERS not in path.parents)
NATIVE = sorted(path for kind in ("*.cpp", "*.h") for path in (ROOT / "csrc").rglob(kind))
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "shelve", "marshal", "torch", "transformers"}


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_files_are_found() -> None:
    assert len(MODULES) > 100 and len(NATIVE) > 15


def test_the_core_stays_small() -> None:
    assert lines_of(SOURCE / "engine" / "core.py") < 150


@pytest.mark.parametrize("path", [*MODULES, *NATIVE, *sorted((ROOT / "tools").rglob("*.py"))], ids=short)
def test_files_and_functions_are_small(path: Path) -> None:
    assert lines_of(path) <= 400
    if path.suffix == ".py":
        sizes = {f.name: (f.end_lineno or 0) - f.lineno + 1 for f in functions(ast.parse(path.read_text()))}
        assert {name: size for name, size in sizes.items() if size > 80} == {}


@pytest.mark.parametrize("path", MODULES, ids=short)
def test_modules_open_with_what_they_know(path: Path) -> None:
    text = path.read_text()
    if not text.strip():
        return  # a folder that only marks a package
    words = ast.get_docstring(ast.parse(text))
    assert words, "a module opens with one line that says what it is"
    if path.name != "__init__.py":
        assert "Knows:" in words and "Must not know:" in words


@pytest.mark.parametrize("path", MODULES, ids=short)
def test_public_functions_have_docstrings(path: Path) -> None:
    missing = []
    for node in ast.parse(path.read_text()).body:
        members = node.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else [node]
        for member in members:
            named = isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if named and not member.name.startswith("_") and not ast.get_docstring(member):
                missing.append(member.name)
    assert missing == []


@pytest.mark.parametrize("path", MODULES, ids=short)
def test_nothing_runs_strings_or_reads_the_environment(path: Path) -> None:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append(node.func.id)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
            found += [name for name in names if name.split(".")[0] in FORBIDDEN_MODULES]
        reads = isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "putenv"}
        if reads and path != SOURCE / "env.py":
            found.append("environment")
    assert found == []
