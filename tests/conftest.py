"""Options of a run. `--quick` runs a part of the tests (`make test`); otherwise all of them run (`make test-all`).

Only the commit decides whether a run is red or green: random draws follow from a seed, and the seed is fixed. `--daily`
(`make test-daily`) takes another seed each day, and only it runs tests that are marked daily.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import drawn, neutral, private_cache, spent
from tests.real import packages
from tests.tiers import (
    AT_COMMITS,
    EVERY_OP,
    EVERY_OP_OF_A_DEVICE,
    FIXED_SEED,
    KEPT_CASES,
    KEPT_FAMILIES,
    KEPT_FILES,
    KEPT_OF_A_PROCESS_FILE,
    KEPT_OF_A_WORLD_FILE,
    KEPT_OF_AN_ENGINE_FILE,
    KEPT_PROCESSES,
    NATIVE_TESTS,
    PROCESS_TESTS,
    QUICKLY,
    ROOT,
    TIER,
    WHOLE_GRIDS,
    WORLD_TESTS,
    Kept,
    covering,
    digest_of,
    examples,
    files_of,
    levels,
    most_of_a_file,
    seed_of,
    thinned,
)

FAMILY_PARAMETERS = ("family", "architecture")
"""Names of parameters that run over all families, or over one family of each architecture."""
FIRST = ("laws", "spec", "config", "cost", "pure", "scheduler", "sampling", "workload", "planner", "runner", "text")
"""Folders with quick tests come first."""
CACHE_KEY = "twostroke/native-green"
DECIDED = ("thin_files", "skip_native", "skip_daily")
"""Options that a run sets by itself."""

# PyTorch is a reference here. It ends with an illegal instruction on a virtual machine that reports matrix registers
# which it does not have.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# References are tiny. If PyTorch and NumPy divide them among threads, these threads mostly wait for one another and
# spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    own = parser.getgroup("twostroke")
    own.addoption("--quick", action="store_true", help="one level of kernels, some cases of each test, nothing slow")
    own.addoption("--daily", action="store_true", help="seeds of today's date, also for Hypothesis")
    own.addoption("--grid-seed", type=int, help=f"chooses cases, schedules and times (default: {FIXED_SEED})")
    own.addoption("--write-judged", action="store_true", help="ask judges, and store what they say (tests/judged.py)")
    own.addoption("--thin-files", action="store_true", help="a few tests of each file whose tests take long")
    own.addoption("--skip-daily", action="store_true", help="leave out what is marked daily, and most of large grids")
    own.addoption("--skip-native", action="store_true", help=f"leave out {', '.join(NATIVE_TESTS)}")


def pytest_configure(config: pytest.Config) -> None:
    option = config.option
    option.grid_seed = seed_of(option.grid_seed, option.daily, time.gmtime())
    TIER.quick, TIER.daily, TIER.seed, TIER.writes = option.quick, option.daily, option.grid_seed, option.write_judged
    neutral.clear(os.environ)
    if option.quick:  # A second thread of an engine mostly waits, and spins, next to the other worker's tests.
        os.environ.setdefault("TWOSTROKE_THREADS", "1")
    # Measured times decide whether a guess pays, so with guesses the number of steps varies. Tests of guesses ask for
    # them; tests/speculate/test_default_way.py has the product's default.
    os.environ.setdefault("TWOSTROKE_SPECULATE", "off")
    folder = private_cache.enter()
    config.add_cleanup(lambda: private_cache.leave(folder))
    # A busy machine fails no test: neither a slow example nor slow drawing of examples is an error.
    untimed = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "database": None}
    settings.register_profile("ours", max_examples=examples(100), derandomize=not option.daily, **untimed)
    settings.load_profile("ours")
    drawn.by_seed(TIER.seed) if option.daily else drawn.by_test_alone()
    if is_worker(config):
        vars(option).update({name: config.workerinput[name] for name in DECIDED})
        return
    option.skip_daily |= not option.daily and (option.quick or runs_everything(config))
    if option.quick and runs_everything(config):  # a file that is named on the command line keeps its tests
        option.thin_files = True
        option.skip_native = config.cache.get(CACHE_KEY, "") == digest_of()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist gives a worker only the arguments of the command line. This adds the decisions that were made after
    them."""
    node.workerinput.update({name: getattr(node.config.option, name) for name in DECIDED})


def pytest_sessionstart(session: pytest.Session) -> None:
    """Prints the head of the run, also with -q, where pytest prints no header."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or is_worker(session.config):
        return
    if TIER.daily:
        reporter.write_line(
            f"daily run: everything that is drawn follows from --grid-seed {TIER.seed}. `pytest --daily --grid-seed "
            f"{TIER.seed}` draws it again; a fault becomes a test with fixed values."
        )
    if session.config.option.skip_daily:
        reporter.write_line("What is marked daily is left to `make test-daily`.")
    if not TIER.quick:
        if session.config.option.skip_daily:
            reporter.write_line(LESS)
        return
    reporter.write_line(
        f"quick run: kernels of level {', '.join(levels())}; of each test at most {KEPT_CASES} cases "
        f"({KEPT_PROCESSES} where each takes a second) and {KEPT_FAMILIES} families; of {len(KEPT_FILES)} folders that "
        f"take long some files; of files whose tests start processes {KEPT_OF_A_PROCESS_FILE} test, engines "
        f"{KEPT_OF_AN_ENGINE_FILE}, several servers or ranks or an emulated device {KEPT_OF_A_WORLD_FILE}; chosen by "
        f"--grid-seed {TIER.seed}; nothing marked slow. `make test-all` runs more, `make test-daily` everything."
    )
    if session.config.option.skip_native:
        reporter.write_line(NOT_RUN, yellow=True)


LESS = (
    f"So are most of large grids: of a test {AT_COMMITS.cases} cases run ({AT_COMMITS.processes} where each takes a "
    f"second), or as many as have each value of its parameters; of one over all families {len(AT_COMMITS.always)}, "
    f"which have every op and cache, and {AT_COMMITS.families} others. A file that is asked for keeps its cases."
)
NOT_RUN = (
    f"NOT RUN: {', '.join(NATIVE_TESTS)}. Kernels, ops and these tests are those of a green run with the same seed."
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.option.skip_native:
        terminalreporter.write_line(NOT_RUN, yellow=True)
    if runs_everything(terminalreporter.config) and not terminalreporter.config.option.collectonly:
        terminalreporter.section("seconds by folder")
        every = [report for reports in terminalreporter.stats.values() for report in reports]
        timed = [report for report in every if hasattr(report, "duration")]
        for line in spent.by_folder(timed):
            terminalreporter.write_line(line)
        terminalreporter.section("seconds of the longest files")
        for line in spent.by_file(timed):
            terminalreporter.write_line(line)
    for line in packages.not_run([str(report.longrepr) for report in terminalreporter.getreports("skipped")]):
        terminalreporter.write_line(line, yellow=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if is_worker(config) or config.option.skip_native or not (TIER.quick and runs_everything(config)):
        return
    config.cache.set(CACHE_KEY, digest_of() if exitstatus == 0 else "")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """A measurement of this machine in one file's tests must not decide anything in the files after it."""
    if nextitem is None or nextitem.path != item.path:
        private_cache.forget(Path(os.environ[private_cache.VARIABLE]))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Imported and collected objects never become garbage. They are frozen, because searching them took seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file that a quick run leaves out is not even imported."""
    if not config.option.thin_files or collection_path.suffix != ".py" or ROOT not in collection_path.parents:
        return None
    is_test = collection_path.name.startswith("test_")
    return True if is_test and collection_path not in files_of(folder_of(collection_path)) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=place)
    kept = items
    if config.option.skip_daily:
        kept = [item for item in items if item.get_closest_marker("daily") is None]
    if TIER.quick:
        kept = [item for item in kept if item.get_closest_marker("slow") is None]
        if config.option.skip_native:
            kept = [item for item in kept if not lies_in(item, NATIVE_TESTS)]
        kept = thin(kept, QUICKLY)
        if config.option.thin_files:
            kept = thin_files(kept)
    elif config.option.skip_daily:
        kept = thin(kept, AT_COMMITS)
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def thin(items: list[pytest.Item], part: Kept) -> list[pytest.Item]:
    """The items, without most cases of large grids and without most families."""
    cases: dict[str, list[pytest.Item]] = {}
    families: dict[str, dict[str, list[pytest.Item]]] = {}
    for item in items:
        test = item.nodeid.partition("[")[0]
        if (family := family_of(item)) is not None:
            families.setdefault(test, {}).setdefault(family, []).append(item)
        elif hasattr(item, "callspec") and not is_whole(item, part):
            cases.setdefault(test, []).append(item)
    left_out: set[pytest.Item] = set()
    for name, grid in cases.items():
        most = replace(part, cases=part.processes) if lies_in(grid[0], PROCESS_TESTS) else part
        left_out.update(set(grid) - set(covering(grid, [values_of(item) for item in grid], name, most)))
    for by_family in families.values():  # with one name for the choice, tests over the same families keep the same ones
        others = [family for family in by_family if family not in part.always]
        kept = {*part.always, *thinned(others, "families", part.families)}
        left_out.update(item for family in set(by_family) - kept for item in by_family[family])
    return [item for item in items if item not in left_out]


def is_whole(item: pytest.Item, part: Kept) -> bool:
    """Whether no case of a grid is left out."""
    if part is AT_COMMITS and item.nodeid.startswith(EVERY_OP_OF_A_DEVICE):
        return True
    return lies_in(item, (WHOLE_GRIDS,)) or item.path.name == EVERY_OP


def values_of(item: Any) -> dict[str, Hashable]:
    """The parameters of a case. A parameter that cannot be hashed counts as equal only to itself."""
    found: dict[str, Hashable] = {}
    for name, value in item.callspec.params.items():
        try:
            hash(value)
            found[name] = value
        except TypeError:
            found[name] = id(value)
    return found


def thin_files(items: list[pytest.Item]) -> list[pytest.Item]:
    """The items, without most tests of files where each test takes long."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    left: list[pytest.Item] = []
    for file, tests in files.items():
        most = most_of_a_file(folder_of(file))
        left += tests if most is None else thinned(tests, file.relative_to(ROOT).as_posix(), most)
    return left


def family_of(item: pytest.Item) -> str | None:
    """The family that a test is about."""
    found = getattr(item, "callspec", None)
    return (
        next((str(found.params[name]) for name in FAMILY_PARAMETERS if name in found.params), None) if found else None
    )


def place(item: pytest.Item) -> int:
    """The key for the order of a run; files and tests within them keep their order. Long files do not come last."""
    folder = folder_of(item.path)
    name = folder[len("tests/") :]
    if name in FIRST:
        return FIRST.index(name)
    return len(FIRST) + (folder not in PROCESS_TESTS + WORLD_TESTS)


def lies_in(item: pytest.Item, folders: tuple[str, ...]) -> bool:
    return folder_of(item.path) in folders


@cache
def folder_of(file: Path) -> str:
    """The folder of tests/ in which a file lies, such as `tests/ops`."""
    return "/".join(file.relative_to(ROOT).parts[:2])


def runs_everything(config: pytest.Config) -> bool:
    """Whether the run has no file, name or mark as an argument, and results can be kept."""
    option = config.option
    asked = option.keyword or option.markexpr or getattr(option, "lf", True)
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and hasattr(config, "cache") and not asked


def is_worker(config: pytest.Config) -> bool:
    """Whether pytest-xdist started this process; its controller decides for all."""
    return hasattr(config, "workerinput")
