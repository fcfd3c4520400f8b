"""The laws of the server's page: small files, no text that becomes markup, nothing from other hosts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "src" / "twostroke" / "server" / "page"
FILES = sorted(path for kind in ("*.js", "*.css", "*.html") for path in PAGE.rglob(kind))
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|\beval\(|new Function|setHTML")
ELSEWHERE = re.compile(r"""(?:src|href|from|url\(|import\()\s*=?\s*["'(]?\s*(?:https?:)?//""")


def short(path: Path) -> str:
    return str(path.relative_to(PAGE))


def test_files_are_found_and_small_together() -> None:
    assert len(FILES) > 20 and sum(path.stat().st_size for path in FILES) < 250_000


@pytest.mark.parametrize("path", FILES, ids=short)
def test_files_are_small_and_take_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    assert MARKUP.findall(text) == [] and ELSEWHERE.findall(text) == []


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".js"], ids=short)
def test_modules_open_with_what_they_are(path: Path) -> None:
    assert path.read_text().startswith("// ")


@pytest.mark.parametrize("path", FILES, ids=short)
def test_links_follow_the_page_below_any_prefix(path: Path) -> None:
    """A proxy may show the page below a path of its own. So links are relative, and they name files that exist."""
    text = path.read_text()
    assert re.findall(r"""(?:src|href|from|url\(|import\()\s*=?\s*["'(]?\s*/""", text) == []
    base = PAGE.parent if path.name == "index.html" else path.parent
    for target in re.findall(r"""(?:from |src=|href=|import\()["']([^"'#][^"']*\.(?:js|css|svg))["']""", text):
        assert (base / target).resolve().is_file(), target
    assert path.name == "api.js" or not re.search(r"\bfetch\(", text), "calls go through api.js, which knows the prefix"
