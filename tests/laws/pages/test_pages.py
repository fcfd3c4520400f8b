"""The pages that explain the code name files that exist, and a reader finds each guide from the first page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("page", ["START-HERE.md", "ARCHITECTURE.md", "adr/0015-a-model-is-a-traced-program.md"])
def test_files_that_a_page_names_are_there(page: str) -> None:
    """Paths with a folder. In these pages they begin below src/twostroke, or at the root."""
    text = (ROOT / "docs" / page).read_text()
    named = set(re.findall(r"`((?:\w+/)+\w+\.(?:py|cpp|h))`", text)) - {"models/NAME.py"}

    missing = {name for name in named if not (ROOT / name).exists() and not (ROOT / "src/twostroke" / name).exists()}
    assert len(named) > 5 and missing == set()
    for target in re.findall(r"\]\(([\w/.-]+\.md)\)", text):
        assert ((ROOT / "docs" / page).parent / target).exists(), target


def test_the_first_page_and_the_menu_lead_to_every_guide() -> None:
    guides = {f"guides/{path.name}" for path in (ROOT / "docs" / "guides").glob("*.md")}
    first = set(re.findall(r"\]\((guides/[\w-]+\.md)\)", (ROOT / "docs" / "index.md").read_text()))
    menu = set(re.findall(r": (guides/[\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert len(guides) > 20 and first == guides and menu == guides
