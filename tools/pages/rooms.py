"""Makes the table of rooms in docs/ARCHITECTURE.md: each package of twostroke with its docstring's first sentence."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "twostroke"
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN, END = "<!-- rooms: written by tools/generate_docs.py -->\n", "<!-- end of rooms -->\n"
ORDER = (
    *("cli", "server", "lab", "llm.py", "assembly", "distributed", "quantize", "runner", "models", "weights"),
    *("backends", "engine", "ops", "images", "text", "cost", "types", "system", "assets"),
)
"""The rooms from the top to the bottom. A room imports only rooms below it (.importlinter)."""


def architecture_page() -> str:
    """Returns docs/ARCHITECTURE.md with a new table of rooms. Raises ValueError when ORDER and the packages differ."""
    there = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {"llm.py"}
    if there != set(ORDER):
        raise ValueError(f"tools/pages/rooms.py and the packages differ: {sorted(there ^ set(ORDER))}")
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    return before + BEGIN + "\n".join(["", "| room | contains |", "| --- | --- |", *_rows(), "", ""]) + END + after


def _rows() -> Iterator[str]:
    for name in ORDER:
        path = PACKAGE / name
        yield f"| **`{name}`** | {_opening(path if path.is_file() else path / '__init__.py')} |"
        for inner in sorted(path.glob("*/__init__.py")):
            if opening := _opening(inner):
                yield f"| `{name}/{inner.parent.name}` | {opening} |"


def _opening(path: Path) -> str:
    """Returns the first paragraph of a module's docstring as one line."""
    words = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(words.split("\n\n")[0].split())
