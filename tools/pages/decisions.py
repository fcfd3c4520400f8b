"""Makes docs/adr/README.md: the decision records by number, each with its title."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "adr"


def decisions_page() -> str:
    """Returns the index. A record's title is its first line."""
    lines = ["# Decisions\n", "Each record has its context, the decision and what followed.\n"]
    for path in sorted(FOLDER.glob("[0-9]*.md")):
        lines.append(f"- [{path.read_text().splitlines()[0].removeprefix('# ')}]({path.name})")
    return "\n".join(lines) + "\n"
