"""Tests are the same on every machine and day: none asks for the date, the user or the cores, or draws without a seed.

The exceptions are listed here, each with its reason.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
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
    ("tests/native/emulated.py", "os.cpu_count"),  # compiles side by side
    ("tests/native/test_pool.py", "os.cpu_count"),  # it starts as many busy programs as there are cores
    ("tests/cli/test_process.py", "os.sched_getaffinity"),  # any one core, for two programs
}
FILES = sorted((ROOT / "tests").rglob("*.py"))
JUDGE = re.compile(r"^(?:import|from) (?:torch|transformers|peft|safetensors\.torch)\b", re.MULTILINE)
"""Packages that take seconds to import. Each process of each run would pay for them, whatever it runs."""
WITH_A_JUDGE = {
    **{"adapters": 1, "beams": 2, "cuda": 1, "engine": 1, "models": 30, "quantize": 2, "ranks": 1, "real": 1},
    **{"retrieval": 5, "spark": 4, "spec": 1, "speculate": 2, "vision": 10, "weights": 18},
}
"""The number of files in each folder that import one when they are collected. Move an import to where it is used and
lower the number; never raise it."""


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


def test_no_more_tests_import_what_takes_seconds_before_they_run() -> None:
    found = Counter(path.relative_to(ROOT).parts[1] for path in FILES if JUDGE.search(path.read_text()))
    assert {folder: count for folder, count in found.items() if count > WITH_A_JUDGE.get(folder, 0)} == {}
    assert JUDGE.search("import os\nimport torch\n") and JUDGE.search("from transformers.models import x")
    assert not JUDGE.search("def f():\n    import torch\n") and not JUDGE.search("import torchlight")


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
