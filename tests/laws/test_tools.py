"""Tools are run by hand and seldom. So this test checks that the names which they import exist."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = sorted((ROOT / "tools").rglob("*.py"))


def exists(module: str, name: str) -> bool:
    """Whether `from module import name` works."""
    try:
        return hasattr(importlib.import_module(module), name) or bool(importlib.import_module(f"{module}.{name}"))
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("tool", TOOLS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_that_a_tool_takes_from_the_package_exists(tool: Path) -> None:
    missing = []
    for node in ast.walk(ast.parse(tool.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "twostroke":
            missing += [f"{node.module}: {each.name}" for each in node.names if not exists(str(node.module), each.name)]
    assert missing == []
