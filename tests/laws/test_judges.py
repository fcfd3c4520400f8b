"""No file of tests imports a judge (torch, transformers) when it is collected: every process of every run would pay.

An import costs some seconds and half a gigabyte of memory. What a judge said is in tests/judged.json, and what it made
is kept (tests/kept.py). A file that must ask it imports it in the function that asks, or takes it from tests/lazily.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.tiers import ROOT

JUDGES = {"torch", "transformers", "peft", "safetensors.torch"}


def at_once(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs when a module is imported: nothing inside functions, and nothing for type checkers alone."""
    waiting = list(ast.iter_child_nodes(tree))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


def imported(source: str) -> set[str]:
    """Names of modules, and of what is imported from them."""
    found: set[str] = set()
    for node in at_once(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


def with_a_judge(modules: Mapping[str, set[str]]) -> set[str]:
    """Names of modules that import a judge, themselves or by others of `modules`."""
    found = {name for name, needs in modules.items() if any(is_judge(each) for each in needs)}
    while True:
        more = {name for name, needs in modules.items() if needs & found} - found
        if not more:
            return found
        found |= more


def is_judge(module: str) -> bool:
    """Whether a module is a judge's or lies in one."""
    return any(module == name or module.startswith(f"{name}.") for name in JUDGES)


def name_of(path: Path) -> str:
    """tests.models.parity for .../tests/models/parity.py."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, set[str]]:
    """Those of tests/ and tools/, with what each imports at once."""
    paths = (path for folder in ("tests", "tools") for path in (ROOT / folder).rglob("*.py"))
    return {name_of(path): imported(path.read_text()) for path in paths}


def test_no_file_imports_what_takes_seconds_before_it_runs() -> None:
    found = with_a_judge(modules())
    tests = {name for name in found if name.rpartition(".")[2].startswith("test_")}
    assert tests == set(), "Import the judge in the function that asks it (tests/kept.py, tests/lazily.py)."


def test_a_judge_is_found_through_other_files_and_not_inside_functions() -> None:
    graph = {"a": {"torch.nn"}, "b": {"a"}, "c": {"b", "numpy"}, "d": {"numpy", "torchlight"}}
    assert with_a_judge(graph) == {"a", "b", "c"}
    early = (
        "import torch\ntry:\n    from transformers import x\nexcept ImportError:\n    pass\nclass A:\n    import peft\n"
    )
    assert imported(early) == {"torch", "transformers", "transformers.x", "peft"}
    later = "def f():\n    import torch\nif TYPE_CHECKING:\n    import transformers\nelse:\n    import os\n"
    assert imported(later) == {"os"}
