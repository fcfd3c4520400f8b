"""docs/promises.md: every promise names tests, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    )


def test_each_promise_names_a_test_that_exists() -> None:
    rows = [line for line in (ROOT / "docs" / "promises.md").read_text().splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith(("| promise", "| ---"))]
    assert len(promises) > 30
    for row in promises:
        named = NAMED.findall(row)
        assert named, f"no test: {row}"
        for path, name in named:
            assert (ROOT / path).is_file() and name in names_in(path), f"{path}::{name}"
