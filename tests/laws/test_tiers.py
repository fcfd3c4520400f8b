"""What a quick run leaves out: its choice can be repeated and changes with the seed; a changed source is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tiers


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
    assert tiers.TIER.arguments() == []


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
