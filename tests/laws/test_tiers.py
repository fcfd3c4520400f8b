"""What a run tests: it follows from the commit and the seed, a quick run leaves out a part, and a change is noticed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from tests import conftest, drawn, private_cache, spent, tiers
from tests.conftest import thin, thin_files


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


def test_rows_meet_columns_in_turn_and_other_seeds_bring_the_other_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    met: set[tuple[int, str]] = set()
    for seed in range(7):
        monkeypatch.setattr(tiers.TIER, "seed", seed)
        pairs = tiers.in_turn(range(14), "abcdefg", 2)
        assert len(set(pairs)) == 28 and set(Counter(column for _, column in pairs).values()) == {4}
        met.update(pairs)
    assert len(met) == 14 * 7


def test_a_daily_run_leaves_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for tier, counts in ((tiers.Tier(quick=True), [1, 2]), (tiers.Tier(), [3, 2]), (tiers.Tier(daily=True), [10, 4])):
        monkeypatch.setattr(tiers, "TIER", tier)
        assert [tiers.fewer(10, quick=1), tiers.fewer(4, quick=2)] == counts
    monkeypatch.setattr(tiers, "TIER", tiers.Tier(seed=7))
    assert tiers.TIER.arguments() == ["--grid-seed", "7"]
    assert tiers.Tier(True, True, 8).arguments() == ["--quick", "--daily", "--grid-seed", "8"]


MACHINES = {
    "generic": ("generic", "generic"),
    "generic avx2": ("generic avx2", "avx2"),
    "generic avx2 avxvnni": ("generic avx2 avxvnni", "avxvnni"),
    "generic avx2 avx512": ("generic avx2 avx512", "avx512"),
    "generic avx2 avxvnni avx512": ("generic avx2 avx512", "avx512"),
    "generic avx2 avxvnni avx512 amx": ("generic avx2 avx512 amx", "amx"),
    "generic neon dotprod i8mm": ("generic neon dotprod i8mm", "i8mm"),
}
"""The levels that a machine runs -> those of a whole run, and that of a quick one."""


def test_each_machine_has_its_levels_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    for runs, (whole, best) in MACHINES.items():
        monkeypatch.setattr(tiers, "available_levels", runs.split)
        monkeypatch.setattr(tiers, "TIER", tiers.Tier(quick=False))
        assert tiers.levels() == tuple(whole.split()), runs
        monkeypatch.setattr(tiers, "TIER", tiers.Tier(quick=True))
        assert tiers.levels() == (best,), runs


def test_the_day_changes_daily_runs_alone() -> None:
    days = [time.gmtime(at_s) for at_s in (1_700_000_000, 1_800_000_000)]
    assert [tiers.seed_of(None, False, day) for day in days] == [tiers.FIXED_SEED] * 2
    assert [tiers.seed_of(None, True, day) for day in days] == [20231114, 20270115]
    assert [tiers.seed_of(5, daily, days[0]) for daily in (False, True)] == [5, 5]


def test_hypothesis_draws_the_same_whatever_was_imported_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, Hypothesis takes constants out of all modules that other tests have imported in this process."""
    monkeypatch.setattr(providers, "_get_local_constants", providers._get_local_constants)
    drawn.by_test_alone()
    found: list[int] = []

    @settings(max_examples=300, derandomize=True, database=None)
    @given(st.integers())
    def draw(value: int) -> None:
        found.append(value)

    draw()
    alone, _ = found.copy(), found.clear()
    (tmp_path / "full_of_constants.py").write_text("\n".join(f"x{i} = {7_000_003 * i}" for i in range(1, 300)))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("full_of_constants")
    draw()
    assert found == alone


def test_a_run_tries_a_part_of_the_examples_and_always_some(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, whole, everything = [33, 8, 4, 4, 3], [50, 12, 10, 6, 3], [400, 100, 20, 6, 3]
    for tier, expected in (((True, False), quick), ((False, False), whole), ((False, True), everything)):
        monkeypatch.setattr(tiers, "TIER", tiers.Tier(*tier))
        assert [tiers.examples(count) for count in (400, 100, 20, 6, 3)] == expected


@pytest.mark.parametrize("part", [tiers.QUICKLY, tiers.AT_COMMITS], ids=["quick", "whole"])
def test_a_run_keeps_fewer_cases_where_each_starts_a_process_and_all_of_the_laws(part: tiers.Kept) -> None:
    class Item:
        def __init__(self, folder: str, test: str, case: int) -> None:
            self.path, self.nodeid = tiers.ROOT / folder / "test_x.py", f"{folder}/test_x.py::{test}[{case}]"
            self.callspec = SimpleNamespace(params={"case": case})

    folders = ("tests/cli", "tests/text", "tests/laws")
    grid = [Item(folder, "test_grid", case) for folder in folders for case in range(40)]
    kept = Counter(item.path.parent.name for item in thin(grid, part))  # type: ignore[arg-type]
    assert kept == {"cli": part.processes, "text": part.cases, "laws": 40}


def test_a_whole_run_keeps_each_value_of_a_parameter_that_has_few() -> None:
    grid = [(kind, rows, seed) for kind in "abcdefghijklmnopqrst" for rows in (1, 2, 9) for seed in range(100)]
    values = [{"kind": kind, "rows": rows, "seed": seed} for kind, rows, seed in grid]
    kept = tiers.covering(grid, values, "grid", tiers.AT_COMMITS)
    assert {kind for kind, _, _ in kept} == set("abcdefghijklmnopqrst") and {rows for _, rows, _ in kept} == {1, 2, 9}
    assert len(kept) == 20 and kept == [case for case in grid if case in kept], "in their order, and no more"
    assert kept == tiers.covering(grid, values, "grid", tiers.AT_COMMITS) != tiers.covering(
        grid, values, "another", tiers.AT_COMMITS
    )
    single = tiers.covering(list(range(30)), [{"case": case} for case in range(30)], "single", tiers.AT_COMMITS)
    assert len(single) == tiers.AT_COMMITS.cases
    assert tiers.covering([1, 2], [{"case": 1}, {"case": 2}], "small", tiers.AT_COMMITS) == [1, 2]


def test_a_whole_run_keeps_the_families_that_have_every_op_and_some_others() -> None:
    class Item:
        def __init__(self, family: str) -> None:
            self.path, self.nodeid = tiers.ROOT / "tests/models/test_x.py", f"tests/models/test_x.py::test[{family}]"
            self.callspec = SimpleNamespace(params={"family": family})
            self.family = family

    always = tiers.AT_COMMITS.always
    items = [Item(name) for name in (*always, *map(str, range(300)))]
    kept = [item.family for item in thin(items, tiers.AT_COMMITS)]  # type: ignore[arg-type, attr-defined]
    assert set(always) < set(kept) and len(kept) == len(always) + tiers.AT_COMMITS.families
    quick = thin(items, tiers.QUICKLY)  # type: ignore[arg-type]
    assert len(quick) == tiers.KEPT_FAMILIES


def test_a_quick_run_imports_some_files_of_folders_that_take_long_and_all_of_the_others() -> None:
    def imported(path: Path, thinned: bool) -> bool:
        config = SimpleNamespace(option=SimpleNamespace(thin_files=thinned))
        return conftest.pytest_ignore_collect(path, config) is None  # type: ignore[arg-type]

    folders = [path for path in (tiers.ROOT / "tests").iterdir() if list(path.rglob("test_*.py"))]
    assert len(folders) > 30 and {f"tests/{folder.name}" for folder in folders} >= set(tiers.KEPT_FILES)
    for folder in folders:
        files = sorted(folder.rglob("test_*.py"))
        named = tiers.KEPT_FILES.get(f"tests/{folder.name}", " ".join(map(str, files))).split()
        assert 0 < sum(imported(path, True) for path in files) == len(named), folder
        assert all(imported(path, False) for path in files) and imported(folder / "conftest.py", True)


def test_a_quick_run_keeps_a_few_tests_of_long_files_and_all_of_the_others() -> None:
    class Item:
        def __init__(self, folder: str, file: int, test: int) -> None:
            self.path = tiers.ROOT / folder / f"test_{file}.py"
            self.nodeid = f"{folder}/test_{file}.py::test_{test}"

    folders = {"cli": 1, "cuda": 1, "page": 1, "serve": 4, "laws": 30, "text": 30}
    items = [Item(f"tests/{folder}", file, test) for folder in folders for file in (1, 2) for test in range(30)]
    kept = thin_files(items)  # type: ignore[arg-type]
    assert Counter((item.path.parent.name, item.path.name) for item in kept) == {
        (folder, f"test_{file}.py"): most for folder, most in folders.items() for file in (1, 2)
    }
    assert kept == [item for item in items if item in kept], "in their order"
    assert kept == thin_files(items)  # type: ignore[arg-type]


@pytest.mark.parametrize("skips", [True, False])
def test_what_is_marked_daily_is_left_to_daily_runs(skips: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "TIER", tiers.Tier())

    class Item:
        path = tiers.ROOT / "tests/text/test_x.py"

        def __init__(self, mark: str) -> None:
            self.nodeid = mark

        def get_closest_marker(self, name: str) -> object:
            return self if name == self.nodeid else None

    items = [Item(mark) for mark in ("daily", "slow", "browser")]
    left_out: list[str] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(item.nodeid for item in items))
    config = SimpleNamespace(option=SimpleNamespace(skip_daily=skips), hook=hook)
    conftest.pytest_collection_modifyitems(config, items)  # type: ignore[arg-type]
    assert left_out == (["daily"] if skips else [])
    assert [item.nodeid for item in items] == ["daily", "slow", "browser"][skips:]


def test_cases_outside_of_those_that_are_kept_are_marked_daily() -> None:
    single, pairs = tiers.rest_daily("abc", "b"), tiers.rest_daily([("a", 1), ("b", 2)], [("a", 1)])
    assert single[1] == "b" and pairs[0] == ("a", 1)
    marked = [single[0], single[2], pairs[1]]
    assert [(each.values, [mark.name for mark in each.marks]) for each in marked] == [
        (("a",), ["daily"]),
        (("c",), ["daily"]),
        (("b", 2), ["daily"]),
    ]


def test_a_run_says_where_its_time_went() -> None:
    told = [("a/test_x.py::t", "setup", 1.5), ("a/test_x.py::t", "call", 2.0), ("b/test_y.py::t[1]", "setup", 9.0)]
    told += [("c/test_z.py::t", "setup", 0.5)]
    reports = [SimpleNamespace(nodeid=f"tests/{name}", when=when, duration=s) for name, when, s in told]
    assert [line.split() for line in spent.by_file(reports, most=2)] == [
        ["9.0", "s", "1", "tests", "tests/b/test_y.py"],
        ["3.5", "s", "1", "tests", "tests/a/test_x.py"],
    ]
    lines = spent.by_folder(reports)
    assert [line.split() for line in lines] == [
        ["9", "s", "1", "tests", "tests/b"],
        ["4", "s", "1", "tests", "tests/a"],
        ["13", "s", "3", "tests", "in", "all", "processes", "together"],
    ]


def test_a_file_of_tests_leaves_no_measurement_and_no_alias_to_the_next_one(tmp_path: Path) -> None:
    for place in ("twostroke/doctor/a.json", "twostroke/packed/b.pack", "twostroke/starts/c", "config/aliases.toml"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    (tmp_path / "twostroke/objects").symlink_to(tmp_path / "twostroke/packed")
    private_cache.forget(tmp_path)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir())
    assert left == ["twostroke/packed/b.pack"] and (tmp_path / "twostroke/objects").is_symlink()
    private_cache.forget(tmp_path / "none")


HOOKS = "pytest_addoption, pytest_configure, pytest_configure_node, pytest_terminal_summary"
DECIDED = """
def test_that_files_are_thinned(request):
    assert hasattr(request.config, "workerinput") and request.config.option.thin_files
    assert request.config.option.skip_daily
"""


@pytest.mark.slow
def test_what_a_run_decides_reaches_its_workers(tmp_path: Path) -> None:
    """This is a run of its own, in a worker of pytest-xdist, with the options and decisions of tests/conftest.py."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = inside\n")
    (tmp_path / "conftest.py").write_text(f"from tests.conftest import {HOOKS}\n")
    (tmp_path / "inside/test_decided.py").write_text(DECIDED)
    command = [sys.executable, "-m", "pytest", "-n", "1", "--quick"]
    own = {**os.environ, "PYTHONPATH": str(tiers.ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    assert "1 tests  in all processes together" in done.stdout


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
