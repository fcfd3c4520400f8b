"""The pages that explain the code name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["START-HERE.md", "ARCHITECTURE.md", "adr/0015-a-model-is-a-traced-program.md"])
def test_files_that_a_page_names_are_there(page: str) -> None:
    """Paths with a folder. In these pages they begin below src/twostroke, or at the root."""
    text = (ROOT / "docs" / page).read_text()
    named = set(re.findall(r"`((?:\w+/)+\w+\.(?:py|cpp|h))`", text)) - {"models/NAME.py"}

    missing = {name for name in named if not (ROOT / name).exists() and not (ROOT / "src/twostroke" / name).exists()}
    assert len(named) > 5 and missing == set()
    for target in re.findall(r"\]\(([\w/.-]+\.md)\)", text):
        assert ((ROOT / "docs" / page).parent / target).exists(), target
