"""What a quick run leaves out: its choice can be repeated and changes with the seed; a changed source is noticed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import tiers
from tests.conftest import thin


def test_a_thinned_grid_keeps_some_cases_and_another_seed_keeps_others(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = list(range(500))
    chosen = []
    for seed in (1, 1, 2):
        monkeypatch.setattr(tiers.TIER, "seed", seed)
        chosen.append(tiers.thinned(grid, "grid"))
    assert chosen[0] == chosen[1] != chosen[2]
    assert all(len(set(cases)) == tiers.KEPT_CASES and cases == sorted(cases) for cases in chosen)
    assert tiers.thinned(grid, "another") != chosen[2]
    assert tiers.thinned(grid[: tiers.KEPT_CASES], "small") == grid[: tiers.KEPT_CASES]


def test_a_whole_run_leaves_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers.TIER, "quick", False)
    assert tiers.fewer(10, quick=1) == 10 and tiers.levels() == tuple(tiers.available_levels())
    assert tiers.examples(400) == 400
    assert tiers.TIER.arguments() == []


def test_a_quick_run_tries_a_part_of_the_examples_and_always_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers.TIER, "quick", True)
    assert [tiers.examples(whole) for whole in (400, 100, 20, 6)] == [80, 20, 5, 5]


def test_a_quick_run_keeps_fewer_cases_where_each_starts_a_process_and_all_of_the_laws() -> None:
    class Item:
        def __init__(self, folder: str, test: str, case: int) -> None:
            self.path, self.nodeid = tiers.ROOT / folder / "test_x.py", f"{folder}/test_x.py::{test}[{case}]"
            self.callspec = SimpleNamespace(params={"case": case})

    folders = ("tests/cli", "tests/text", "tests/laws")
    grid = [Item(folder, "test_grid", case) for folder in folders for case in range(40)]
    kept = Counter(item.path.parent.name for item in thin(grid))  # type: ignore[arg-type]
    assert kept == {"cli": tiers.KEPT_PROCESSES, "text": tiers.KEPT_CASES, "laws": 40}


def test_any_change_of_a_source_or_of_the_seed_is_another_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc/a.cpp").write_text("int a;")
    found = [tiers.digest_of(["csrc"])]
    assert tiers.digest_of(["csrc"]) == found[0]
    (tmp_path / "csrc/a.cpp").write_text("int b;")
    found.append(tiers.digest_of(["csrc"]))
    (tmp_path / "csrc/b.h").write_text("")
    found.append(tiers.digest_of(["csrc"]))
    monkeypatch.setattr(tiers.TIER, "seed", 7)
    found.append(tiers.digest_of(["csrc"]))
    assert len(set(found)) == 4
