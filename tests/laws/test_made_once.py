"""One thread makes a value at its first use. `made_once` must be used for this, because functools' property has no
lock."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "twostroke"


def test_no_module_uses_cached_property() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if path.name != "made_once.py"]
    assert len(modules) > 150
    assert [str(path) for path in modules if "cached_property" in path.read_text()] == []
