"""Tests are the same on every machine and day: none asks for the date, the user or the cores, or draws without a seed.

The exceptions are listed here, each with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import neutral
from tests.tiers import ROOT

DATE = {"date.today", "datetime.now", "datetime.today", "datetime.utcnow", "time.gmtime", "time.localtime"}
DATE |= {"time.strftime", "time.ctime", "time.asctime"}
OF_A_GIVEN_TIME = {"time.gmtime": 1, "time.localtime": 1, "time.ctime": 1, "time.asctime": 1, "time.strftime": 2}
"""Calls that do not ask for the date if they have this many arguments."""
USER = {"getpass.getuser", "os.getlogin", "pwd.getpwuid", "pwd.getpwnam", "Path.home", "os.path.expanduser"}
CORES = {"os.cpu_count", "os.process_cpu_count", "os.sched_getaffinity", "multiprocessing.cpu_count"}
DRAWN = {f"random.{name}" for name in ("random", "randint", "randrange", "choice", "choices", "sample", "shuffle")}
DRAWN |= {f"np.random.{name}" for name in ("rand", "randn", "randint", "random", "normal", "uniform", "permutation")}
DRAWN |= {"uuid.uuid4", "uuid.uuid1", "os.urandom", "secrets.token_hex", "secrets.token_bytes", "secrets.randbits"}
SEEDED = {"random.Random", "Random", "np.random.default_rng", "np.random.RandomState"}
"""Calls that draw by a seed if they are given one."""
REFUSED = DATE | USER | CORES | DRAWN
ALLOWED = {
    ("tests/conftest.py", "time.gmtime"),  # the seed of a daily run
    ("tests/elsewhere.py", "os.sched_getaffinity"),  # makes other machines
    ("tests/elsewhere.py", "Path.home"),
    ("tests/native/emulated/emulated.py", "os.cpu_count"),  # compiles side by side
    ("tests/native/test_pool.py", "os.cpu_count"),  # it starts as many busy programs as there are cores
    ("tests/cli/test_process.py", "os.sched_getaffinity"),  # any one core, for two programs
}
FILES = sorted((ROOT / "tests").rglob("*.py"))
WAITS = {"wait", "join", "settimeout"}
LEAST_S, MUST_NOT_S = 60, 1
"""The least limit, in seconds, of a wait for an event that must happen. A limit of less than a second is for an event
that must not happen."""


def faults(text: str) -> Iterator[str]:
    """The names of refused calls in the source of a test."""
    tree = ast.parse(text)
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        short = ".".join(name.split(".")[-2:])
        if name.startswith("random.") and "random" not in modules:
            continue  # a Random of that name
        if name in SEEDED and not (node.args or node.keywords) or name in DRAWN:
            yield name
        elif short in REFUSED - DRAWN and len(node.args) < OF_A_GIVEN_TIME.get(short, 99):
            yield short


@pytest.mark.parametrize("folder", sorted({path.relative_to(ROOT).parts[:2] for path in FILES}), ids="/".join)
def test_no_test_asks_for_what_differs_from_run_to_run(folder: tuple[str, ...]) -> None:
    place = ROOT.joinpath(*folder)
    found = {
        (str(path.relative_to(ROOT)), fault)
        for path in ([place] if place.is_file() else sorted(place.rglob("*.py")))
        for fault in faults(path.read_text())
    }
    assert found - ALLOWED == set(), "Inject it, take a seed of tests.tiers, or name the reason in ALLOWED."


def short_limits(text: str) -> Iterator[str]:
    """Waits in the source of a test that a busy machine may not meet."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            given = [word.value for word in node.keywords if word.arg == "timeout"]
            if isinstance(node.func, ast.Attribute) and node.func.attr in WAITS:
                given += node.args[:1]
            for each in given:
                if isinstance(each, ast.Constant) and isinstance(each.value, int | float):
                    if MUST_NOT_S <= each.value < LEAST_S:
                        yield ast.unparse(node)


def test_a_busy_machine_meets_every_limit() -> None:
    """PATIENCE_S of tests/patience.py does: a test that passes never waits so long."""
    found = {str(path.relative_to(ROOT)): list(short_limits(path.read_text())) for path in FILES}
    assert {path: limits for path, limits in found.items() if limits} == {}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("event.wait(20)", 1),
        ("thread.join(timeout=5.0)", 1),
        ("run(command, timeout=30)", 1),
        ("sock.settimeout(5)", 1),
        ("thread.join(0.1)", 0),
        ("event.wait(PATIENCE_S)", 0),
        ("run(command, timeout=600)", 0),
        ("', '.join(20)", 1),
    ],
)
def test_a_short_limit_is_seen(source: str, count: int) -> None:
    assert len(list(short_limits(source))) == count


def test_what_the_caller_has_set_reaches_no_test() -> None:
    """The exceptions are variables that a developer may set for a run."""
    found = {"TWOSTROKE_KV_MEMORY": "9", "HF_HUB_OFFLINE": "1", "http_proxy": "x", "TWOSTROKE_THREADS": "1"}
    neutral.clear(found)
    assert found == {"TWOSTROKE_THREADS": "1"}


def test_what_is_allowed_is_used() -> None:
    for path, fault in ALLOWED:
        assert fault in faults(Path(ROOT, path).read_text()), path


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("date.today()", "date.today"),
        ("datetime.datetime.now()", "datetime.now"),
        ("time.gmtime(3)", None),
        ("import random; random.Random()", "random.Random"),
        ("import random; random.Random(3)", None),
        ("np.random.default_rng()", "np.random.default_rng"),
        ("rng.choice([1])", None),
        ("self._random.choice([1])", None),
        ("import random; random.choice([1])", "random.choice"),
        ("random.choice([1])", None),
        ("os.urandom(3)", "os.urandom"),
        ("pathlib.Path.home()", "Path.home"),
    ],
)
def test_the_law_sees_what_it_refuses(source: str, fault: str | None) -> None:
    assert next(faults(source), None) == fault
