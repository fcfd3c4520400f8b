"""Sizes that a reader can keep in mind: lines of a file, files of a folder, lines and arguments of a function.

The last tests plant a file, a folder and functions that are one too large, so that each law is known to see them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.laws.test_house import DRIVERS, ROOT

MOST_LINES, MOST_FILES, MOST_FUNCTION_LINES, MOST_ARGUMENTS = 400, 19, 80, 7
SOURCES = (".py", ".cpp", ".h")
FOLDERS = ("src", "csrc", "tools", "tests")
OWN_FUNCTIONS = ("src", "tools")
"""Functions of tests have as many arguments as fixtures and parameters, so their arguments are not counted."""
LARGE_FOLDERS = {
    "src/twostroke/models/experts": "a register: one file for each architecture",
    "src/twostroke/weights/gguf/families": "a register: one file for each group of architectures in GGUF files",
    "src/twostroke/weights/quantized": "a register: one file for each quantized format",
}
"""Folders with more files than MOST_FILES, and why. The list may only shrink, except for registers."""
LONG_FILES = {
    "tests/models/families/remote.py": (
        "each change of it makes all tiny checkpoints anew, because their digest contains its folder; "
        "divide it with the next judge that it gets"
    ),
}
"""Files with more lines than MOST_LINES, and why."""
LONG_FUNCTIONS: dict[str, str] = {}
"""Functions (path: name) with more lines than MOST_FUNCTION_LINES, and why."""


def sources(root: Path, folders: Iterable[str] = FOLDERS) -> Iterator[tuple[str, Path]]:
    """The files of code in these folders of `root`, each with its name as from `root`."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCES and DRIVERS not in path.parents:
                yield path.relative_to(root).as_posix(), path


def long_files(root: Path) -> dict[str, int]:
    """The files with too many lines, and their number."""
    lines = {name: len(path.read_text().splitlines()) for name, path in sources(root)}
    return {name: count for name, count in lines.items() if count > MOST_LINES}


def large_folders(root: Path) -> dict[str, int]:
    """The folders with too many files of code, and their number. The file __init__.py of a package does not count."""
    counts = Counter(Path(name).parent.as_posix() for name, path in sources(root) if path.name != "__init__.py")
    return {name: count for name, count in counts.items() if count > MOST_FILES}


@cache
def functions_of(text: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions and methods of a module, and those inside them. A module is parsed once for all laws."""
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def functions(root: Path, folders: Iterable[str]) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions and methods of these folders, each as `path: name`."""
    for name, path in sources(root, folders):
        if path.suffix == ".py":
            for each in functions_of(path.read_text()):
                yield f"{name}: {each.name}", each


def long_functions(root: Path) -> dict[str, int]:
    """The functions with too many lines, and their number."""
    lines = {name: (each.end_lineno or 0) - each.lineno + 1 for name, each in functions(root, FOLDERS)}
    return {name: count for name, count in lines.items() if count > MOST_FUNCTION_LINES}


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The names of its arguments, without a method's own object."""
    asked = function.args
    stars = [each for each in (asked.vararg, asked.kwarg) if each is not None]
    names = [each.arg for each in (*asked.posonlyargs, *asked.args, *asked.kwonlyargs, *stars)]
    return [name for name in names if name not in ("self", "cls")]


def crowded_functions(root: Path) -> dict[str, int]:
    """The functions of the package and of tools with too many arguments, and their number."""
    counts = {name: len(arguments(each)) for name, each in functions(root, OWN_FUNCTIONS)}
    return {name: count for name, count in counts.items() if count > MOST_ARGUMENTS}


def check(found: Mapping[str, int], accepted: Mapping[str, str], remedy: str) -> None:
    """Fails for what is too large and not accepted, and for what is accepted and no longer too large."""
    assert {name: count for name, count in found.items() if name not in accepted} == {}, remedy
    assert set(accepted) - set(found) == set(), "take it out of the list of what is accepted"


def test_files_are_short() -> None:
    check(long_files(ROOT), LONG_FILES, "give each of its subjects a file")


def test_folders_have_few_files() -> None:
    check(large_folders(ROOT), LARGE_FOLDERS, "give files that belong together a folder")


def test_functions_are_short() -> None:
    check(long_functions(ROOT), LONG_FUNCTIONS, "give its steps names")


def test_functions_have_few_arguments() -> None:
    check(crowded_functions(ROOT), {}, "name the objects that its arguments form")


@pytest.mark.parametrize("place", ["src/a.py", "csrc/a.cpp", "csrc/include/a.h", "tools/a.py", "tests/a.py"])
def test_a_long_file_is_seen(tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text("\n" * MOST_LINES)
    assert long_files(tmp_path) == {}
    path.write_text("\n" * (MOST_LINES + 1))
    assert long_files(tmp_path) == {place: MOST_LINES + 1}


@pytest.mark.parametrize("folder", ["src/a", "csrc/a", "tools", "tests/a/b"])
def test_a_large_folder_is_seen(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    for name in ("__init__.py", "data.json", *(f"{number}.py" for number in range(MOST_FILES))):
        (tmp_path / folder / name).touch()
    assert large_folders(tmp_path) == {}
    (tmp_path / folder / "one_more.h").touch()
    assert large_folders(tmp_path) == {folder: MOST_FILES + 1}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_long_function_is_seen(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    path = tmp_path / folder / "a.py"
    path.write_text("def short():\n" + "    pass\n" * (MOST_FUNCTION_LINES - 1))
    assert long_functions(tmp_path) == {}
    path.write_text("class A:\n    async def long(self):\n" + "        pass\n" * MOST_FUNCTION_LINES)
    assert long_functions(tmp_path) == {f"{folder}/a.py: long": MOST_FUNCTION_LINES + 1}


@pytest.mark.parametrize("folder", OWN_FUNCTIONS)
def test_a_function_with_many_arguments_is_seen(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    path = tmp_path / folder / "a.py"
    path.write_text("class A:\n    def few(self, a, b, /, c, *d, e, f, **g): ...\n")
    assert crowded_functions(tmp_path) == {}
    path.write_text("class A:\n    def many(self, a, b, /, c, *d, e, f, g, **h): ...\n")
    assert crowded_functions(tmp_path) == {f"{folder}/a.py: many": MOST_ARGUMENTS + 1}


def test_an_exception_that_is_no_longer_needed_is_refused() -> None:
    check({"a.py": 401}, {"a.py": "a table"}, "")
    with pytest.raises(AssertionError, match="take it out"):
        check({}, {"a.py": "a table"}, "")
    with pytest.raises(AssertionError, match="remedy"):
        check({"b.py": 401}, {}, "remedy")
