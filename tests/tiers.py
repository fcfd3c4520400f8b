"""How much a run tests: everything, or with `--quick` what a contributor can wait for.

tests/conftest.py sets TIER before any test module is imported, so modules may ask while they are collected.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pytest

from twostroke.backends.cpu.library import available_levels

FIXED_SEED = 20261128
"""The seed of every run without `--daily`: a fault that it shows is one of the commit, on each day and machine."""
ROOT = Path(__file__).resolve().parents[1]
NATIVE_TESTS = ("tests/ops", "tests/native", "tests/quant")
NATIVE_INPUTS = (
    *("csrc", "src/twostroke/backends", "src/twostroke/ops", "src/twostroke/ops/quant",
    "src/twostroke/types/spec/formats.py"), *("tests/tiers.py", "tests/conftest.py", *NATIVE_TESTS),
)
WHOLE_GRIDS = "tests/laws"
"""A law holds for all files: its cases are never thinned."""
EVERY_OP = "test_cases_native.py"
"""Each case of this file is an op, which takes some of its calls: none is left out."""
PROCESS_TESTS = ("tests/cli", "tests/packaging", "tests/cuda", "tests/ranks", "tests/bench")
"""Each case starts the command at least once, or computes on an emulated device: a second of processor time or more."""
KEPT_CASES = 3
"""As many cases of a test are left; smaller grids are left whole."""
KEPT_PROCESSES = 1
"""The same of PROCESS_TESTS."""
KEPT_OF_A_PROCESS_FILE = 1
"""As many tests are left of a file of PROCESS_TESTS: a whole run has the others."""
WORLD_TESTS = ("tests/cluster", "tests/fleet", "tests/cuda", "tests/ranks", "tests/page")
"""Each test starts several servers, simulates many replicas, computes on an emulated device or on several ranks, or
moves a browser."""
KEPT_OF_A_WORLD_FILE = 1
"""As many tests are left of a file of WORLD_TESTS."""
ENGINE_TESTS = (
    *("tests/serve", "tests/load", "tests/engine", "tests/speculate", "tests/spark", "tests/sim"),
    *("tests/agents", "tests/beams", "tests/faults", "tests/retrieval", "tests/vision", "tests/quantize", "tests/disk"),
)
"""Most tests start a server or an engine: some tenths of a second of processor time each."""
KEPT_OF_AN_ENGINE_FILE = 4
"""As many tests are left of a file of ENGINE_TESTS."""
KEPT_REPEATED, KEPT_REPEATED_DAILY = 3, 5
"""As many cases of a test run again between pages that may not be touched, and with traps, in a whole run too."""
EXAMPLES_SHARE, QUICK_EXAMPLES_SHARE = 8, 12
"""Hypothesis tries one example in this many, in a whole and in a quick run: they are the same in every run, so more of
them would find nothing new. A daily run tries all, and others each day."""
KEPT_FAMILIES = 2
"""As many families, or architectures, are left of a test over all of them."""
Case = TypeVar("Case")
Other = TypeVar("Other")


@dataclass
class Tier:
    """quick: a part is enough. daily: what is drawn differs from day to day. seed: what follows from it: the cases of
    thinned grids, schedules, when processes are killed."""

    quick: bool = False
    daily: bool = False
    seed: int = FIXED_SEED

    def arguments(self) -> list[str]:
        """For a pytest of its own that runs the same part."""
        named = {"--quick": self.quick, "--daily": self.daily}
        return [*(name for name, on in named.items() if on), "--grid-seed", str(self.seed)]


TIER = Tier()


def rest_daily(cases: Iterable[Any], kept: Iterable[Any]) -> list[Any]:
    """The cases for `parametrize`: those outside of `kept` are marked daily, and a run at a commit leaves them out."""
    at_commits = set(kept)
    values = [(case, case if isinstance(case, tuple) else (case,)) for case in cases]
    return [case if case in at_commits else pytest.param(*each, marks=pytest.mark.daily) for case, each in values]


def levels() -> tuple[str, ...]:
    """The instruction-set levels to test: all that this machine runs; the best of them in a quick run.

    Next to avx512, avxvnni has tests of its own (tests/ops/test_vnni_native.py): its whole grids run where it is best.
    """
    found = tuple(level for level in available_levels() if level != "avxvnni" or "avx512" not in available_levels())
    return found[-1:] if TIER.quick else found


def seed_of(asked: int | None, daily: bool, today: time.struct_time) -> int:
    """The seed of a run: the one that was asked for, of a daily run the day (20261128), else always the same."""
    return asked if asked is not None else int(time.strftime("%Y%m%d", today)) if daily else FIXED_SEED


def fewer(whole: int, quick: int) -> int:
    """How many examples, schedules or seconds: `quick` of them in a quick run."""
    return quick if TIER.quick else whole


def examples(whole: int) -> int:
    """How many examples Hypothesis tries of a property."""
    if TIER.daily and not TIER.quick:
        return whole
    share, least = (QUICK_EXAMPLES_SHARE, 4) if TIER.quick else (EXAMPLES_SHARE, 10)
    return min(whole, max(least, whole // share))


def thinned(cases: Sequence[Case], name: str, most: int = KEPT_CASES) -> list[Case]:
    """At most `most` cases of a grid, in their order; `name` makes the choice another one for each grid."""
    if len(cases) <= most:
        return list(cases)
    chosen = random.Random(f"{TIER.seed} {name}").sample(range(len(cases)), most)
    return [cases[index] for index in sorted(chosen)]


def in_turn(rows: Iterable[Case], columns: Sequence[Other], most: int) -> list[tuple[Case, Other]]:
    """Each row with `most` of the columns in turn, so that every column has as many rows. The seed chooses which: daily
    runs go through all pairs."""
    return [
        (row, columns[(place * most + step + TIER.seed) % len(columns)])
        for place, row in enumerate(rows)
        for step in range(most)
    ]


def most_of_a_file(folder: str) -> int | None:
    """How many tests of a file in `folder` a quick run has. None: all."""
    if folder in WORLD_TESTS:
        return KEPT_OF_A_WORLD_FILE
    if folder in PROCESS_TESTS:
        return KEPT_OF_A_PROCESS_FILE
    return KEPT_OF_AN_ENGINE_FILE if folder in ENGINE_TESTS else None


def thinned_where(cases: Sequence[Case], fits: Callable[[Case], bool], name: str, most: int) -> list[Case]:
    """At most `most` of the cases that fit, in their order: for a `fits` that takes long, it is asked no further."""
    order = random.Random(f"{TIER.seed} {name}").sample(range(len(cases)), len(cases))
    return [cases[index] for index in sorted(islice((index for index in order if fits(cases[index])), most))]


def digest_of(paths: Iterable[str] = NATIVE_INPUTS) -> str:
    """A hash of all sources below `paths` and of the seed: equal where a run would do the same again."""
    digest = hashlib.sha256(f"{TIER.seed} {levels()}".encode())
    for path in paths:
        place = ROOT / path
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        for file in files:
            if file.suffix in (".py", ".cpp", ".h"):
                content = file.read_bytes()
                digest.update(f"{file.relative_to(ROOT)} {len(content)} ".encode() + content)
    return digest.hexdigest()
