"""The laws of docs/ARCHITECTURE.md that a script can check: first docstrings, names of classes, one reader of the
environment, no eval. Sizes are in test_sizes.py."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "twostroke"
DRIVERS = SOURCE / "lab" / "bench" / "peers" / "drivers"  # the Python of other engines runs these, not ours
MODULES = sorted(path for path in SOURCE.rglob("*.py") if DRIVERS not in path.parents)
NATIVE = sorted(path for kind in ("*.cpp", "*.h") for path in (ROOT / "csrc").rglob(kind))
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
SHARED_NAMES = {
    **dict.fromkeys(("Answer", "Bound", "Comparison", "Limits", "Line", "Load", "Phase"), 2),
    **dict.fromkeys(("Asked", "Row", "Target"), 2),
    **dict.fromkeys(("Listener", "Room", "Session"), 3),
}
"""How often a public class name occurs in the package, where it occurs more than once. Do not add to it: find another
name."""
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "shelve", "marshal", "torch", "transformers"}


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a module. They are collected once for all laws, because a walk over a tree takes as long as parsing
    it."""
    return list(ast.walk(tree_of(path)))


def lines_of(path: Path) -> int:
    return len(text_of(path).splitlines())


def test_files_are_found() -> None:
    assert len(MODULES) > 100 and len(NATIVE) > 15


def test_the_core_stays_small() -> None:
    assert lines_of(SOURCE / "engine" / "core.py") < 150


def test_modules_open_with_a_docstring() -> None:
    """A contract of .importlinter contains what a module must not import. Its docstring contains its purpose."""
    without = [short(path) for path in MODULES if text_of(path).strip() and not ast.get_docstring(tree_of(path))]
    listing = [short(path) for path in MODULES if "Must not know:" in (ast.get_docstring(tree_of(path)) or "")]
    assert without == [] and listing == []


@cache
def classes_named() -> dict[str, list[ast.ClassDef]]:
    """The classes of the package by name."""
    found: dict[str, list[ast.ClassDef]] = {}
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def documented_above(kind: ast.ClassDef, method: str) -> bool:
    """Whether a parent of this class, or a class that its docstring claims to satisfy, documents the method."""
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in kind.bases]
    text = " ".join((ast.get_docstring(kind) or "").split())
    said = " ".join(re.findall(r"Satisfies (.*?)\.(?: |$)", text))
    names = {base.id for base in bases if isinstance(base, ast.Name)} | set(re.findall(r"\b[A-Z]\w+", said))
    for above in (each for name in names - {kind.name} for each in classes_named().get(name, ())):
        members = [item for item in above.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
        if any(item.name == method and ast.get_docstring(item) for item in members) or documented_above(above, method):
            return True
    return False


def test_docstrings_are_inherited() -> None:
    written = '''class Above:
    def told(self):
        """What."""

class Below(Above[int]):
    def told(self): ...

class Alike:
    """A thing. Satisfies `some.place.Above` and more. Not others."""
'''
    above, below, alike = (node for node in ast.parse(written).body if isinstance(node, ast.ClassDef))
    classes_named()["Above"] = [above]
    for kind in (below, alike):
        assert documented_above(kind, "told") and not documented_above(kind, "other")
    assert not documented_above(above, "told")
    classes_named.cache_clear()


def test_public_functions_have_docstrings() -> None:
    """The docstring is their own or that of the method that they replace. The contract of an op's `reference` is in its
    module."""
    missing = []
    for path in MODULES:
        of_an_op = SOURCE / "ops" in path.parents
        for node in tree_of(path).body:
            kind = node if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else None
            for member in [node] if kind is None else kind.body:
                named = isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                if not named or member.name.startswith("_") or ast.get_docstring(member):
                    continue
                known = documented_above(kind, member.name) if kind else of_an_op and member.name == "reference"
                missing += [] if known else [f"{short(path)}: {member.name}"]
    assert missing == []


def test_nothing_runs_strings_or_reads_the_environment() -> None:
    found = []
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
                found.append(f"{short(path)}: {node.func.id}")
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
                found += [f"{short(path)}: {name}" for name in names if name.split(".")[0] in FORBIDDEN_MODULES]
            reads = isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "putenv"}
            if reads and path != SOURCE / "assembly" / "settings" / "env.py":
                found.append(f"{short(path)}: environment")
    assert found == []


def test_a_public_class_name_stands_once() -> None:
    """SHARED_NAMES lists the names that two or more classes still have. It may only shrink."""
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(short(path))
    new = {name: where for name, where in places.items() if len(where) > SHARED_NAMES.get(name, 1)}
    assert new == {}, "give the newer one another name"
    mended = {name for name, times in SHARED_NAMES.items() if len(places.get(name, ())) < times}
    assert mended == set(), "take it out of SHARED_NAMES, or lower its number there"
