"""How much a run tests: everything, or with `--quick` as much as a contributor can wait for.

tests/conftest.py sets TIER before any test module is imported, so modules may ask while they are collected.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pytest

from twostroke.backends.cpu.library import available_levels

FIXED_SEED = 20261128
"""The seed of every run without `--daily`. A fault that it shows belongs to the commit, on each day and machine."""
ROOT = Path(__file__).resolve().parents[1]
NATIVE_TESTS = ("tests/ops", "tests/native", "tests/quant")
NATIVE_INPUTS = (
    *("csrc", "src/twostroke/backends", "src/twostroke/ops", "src/twostroke/ops/quant",
    "src/twostroke/types/spec/formats.py"), *("tests/tiers.py", "tests/conftest.py", *NATIVE_TESTS),
)
WHOLE_GRIDS = "tests/laws"
"""A law holds for all files, so its cases are never thinned."""
EVERY_OP, EVERY_OP_OF_A_DEVICE = "test_cases_native.py", "tests/cuda/ops/test_cases.py"
"""Each case of these files is an op, which takes some of its calls. A run leaves out no case of the first file; a quick
run leaves most cases of the second out."""
PROCESS_TESTS = ("tests/cli", "tests/packaging", "tests/cuda", "tests/ranks", "tests/bench")
"""Each case starts the command at least once, or computes on an emulated device, which takes a second of processor time
or more."""
KEPT_CASES = 2
"""The number of cases of a test that are left. Smaller grids are left whole."""
KEPT_PROCESSES = 1
"""The same number for PROCESS_TESTS."""
KEPT_OF_A_PROCESS_FILE = 1
"""The number of tests that are left of a file of PROCESS_TESTS. A whole run has the others."""
WORLD_TESTS = ("tests/cluster", "tests/fleet", "tests/cuda", "tests/ranks", "tests/page")
"""Each test starts several servers, simulates many replicas, computes on an emulated device or on several ranks, or
controls a browser."""
KEPT_OF_A_WORLD_FILE = 1
"""The number of tests that are left of a file of WORLD_TESTS."""
ENGINE_TESTS = (
    *("tests/serve", "tests/load", "tests/engine", "tests/speculate", "tests/spark", "tests/sim"),
    *("tests/agents", "tests/beams", "tests/faults", "tests/retrieval", "tests/vision", "tests/quantize", "tests/disk"),
)
"""Most tests start a server or an engine, which takes some tenths of a second of processor time each."""
KEPT_OF_AN_ENGINE_FILE = 4
"""The number of tests that are left of a file of ENGINE_TESTS."""
KEPT_FILES = {
    "tests/agents": "coding_agent frameworks",
    "tests/bench": "compare families fidelity",
    "tests/cli": "predicted/plan store/store store/verbs_of_every_day cli kernels process signals start",
    "tests/cluster": "kill links one_fault page_calls",
    "tests/cuda": "engine/models ops/cases ops/places device sample",
    "tests/disk": "harm index same_bits",
    "tests/engine": (
        "shells/async_engine shells/early_ends shells/llm shells/llm_states shells/sync_engine exactness grammar "
        "isolate limits session"
    ),
    "tests/faults": "first_uses planted_defects random_schedules",
    "tests/fleet": "failover page_exchange router wire",
    "tests/load": "parts session verbs",
    "tests/models": "fields/config_fields fields/newer_fields fields/refused_fields experts gpt2 parity prediction",
    "tests/native": "build context fences object_cache pool",
    "tests/ops": (
        "attention/attention_native attention/latent_native products/experts_native products/feed_forward_native "
        "products/linear_native products/stored_native cases_native embed_native registry running states_native"
    ),
    "tests/page": "chats/chat markdown page",
    "tests/planner": "memory_nodes model_config plan worked_figures",
    "tests/program": "cache_groups check cut fuse trace values with_adapters",
    "tests/quantize": "folds gguf keys layouts mathematics",
    "tests/ranks": "same_bits step_changes",
    "tests/real": "packages served templates",
    "tests/retrieval": "decoders encoders server",
    "tests/serve": (
        "apis/answers apis/clients/messages_api apis/clients/openai_client apis/clients/responses_api "
        "apis/engines/ollama apis/fields apis/formats apis/grammar apis/tools/tools faults/bad_bodies "
        "faults/bad_requests faults/disconnect faults/endings faults/kth_fault faults/overload shown/explain "
        "shown/metrics promises reach security serve streaming_parts"
    ),
    "tests/sim": "cold_start fleet records",
    "tests/speculate": "heads/mtp acceptance default_way draft guesser ngram real_engine",
    "tests/text": (
        "forms/library talk/ends talk/find talk/formats talk/held talk/laws_of_talk talk/speaker talk/switches "
        "talk/unseen grammar/grammar grammar/schema chat_template cut_json detokenizer history legal_ids stops "
        "token_bound tokenizer"
    ),
    "tests/vision": "files/bad_images files/pixels served/input exactness families smolvlm",
    "tests/weights": (
        "gguf/blocks gguf/container gguf/end_to_end gguf/families gguf/stored gguf/tokenizers quantized/formats "
        "quantized/golden store/names files_as_found generation hub/hub load "
        "packed/packed_cache packed/packed_damage safetensors"
    ),
}
"""Files of slow folders, without `test_` and `.py`, that a quick run has: each room and its main promises. It imports
no others of these folders."""
KEPT_REPEATED, KEPT_REPEATED_DAILY = 3, 5
"""The number of cases of a test that run again between forbidden pages and with traps, also in a whole run."""
EXAMPLES_SHARE, QUICK_EXAMPLES_SHARE = 8, 12
"""Hypothesis tries one example in this many, in a whole and in a quick run. They are the same in every run, so more of
them would find nothing new. A daily run tries all, and others each day."""
COMMITS_SHARE = 3
"""A run at a commit makes one of this many examples, schedules or rows."""
KEPT_FAMILIES = 2
"""The number of families, or architectures, that are left of a test over all of them."""
COVERING = (
    *("deepseek-v4", "qwen4-exp", "dots3", "rwkv7", "apertus", "gemma3n", "phimoe-longrope", "recurrent-gemma"),
    *("xlstm", "bamba", "dbrx", "falcon-mamba", "jetmoe", "longcat-flash", "rwkv6", "rwkv4"),
)
"""Families that together have every op and every kind of cache. They were found greedily: each adds the most ops and
caches that no earlier one has (tests/models/families/covering.py)."""
ENCODERS = ("bert", "deberta-v3", "modernbert")
"""The same for models that generate no text."""


@dataclass(frozen=True)
class Kept:
    """How much of each grid is left. cases: the cases of a test. processes: the cases of a test whose cases take a
    second each. families: the families or architectures of a test over them, in addition to those of `always`. values:
    where a parameter has at most this many values, each of them is in a case that is left, even if that takes more
    cases."""

    cases: int
    processes: int
    families: int
    always: tuple[str, ...] = ()
    values: int = 0


QUICKLY = Kept(KEPT_CASES, KEPT_PROCESSES, KEPT_FAMILIES)
AT_COMMITS = Kept(cases=12, processes=4, families=12, always=(*COVERING, *ENCODERS), values=32)
"""What a whole run has. A daily run has all cases, and a file that is named keeps its own."""
Case = TypeVar("Case")
Other = TypeVar("Other")


@dataclass
class Tier:
    """quick: whether a part is enough. daily: whether draws differ from day to day. seed: it decides the cases of
    thinned grids, schedules, and when processes are killed. writes: whether the judges' answers are written to
    tests/judged.json."""

    quick: bool = False
    daily: bool = False
    seed: int = FIXED_SEED
    writes: bool = False

    def arguments(self) -> list[str]:
        """The arguments for a pytest that runs the same part."""
        named = {"--quick": self.quick, "--daily": self.daily}
        return [*(name for name, on in named.items() if on), "--grid-seed", str(self.seed)]


TIER = Tier()


def rest_daily(cases: Iterable[Any], kept: Iterable[Any]) -> list[Any]:
    """The cases for `parametrize`. Those outside of `kept` are marked daily, and a run at a commit leaves them out."""
    at_commits = set(kept)
    values = [(case, case if isinstance(case, tuple) else (case,)) for case in cases]
    return [case if case in at_commits else pytest.param(*each, marks=pytest.mark.daily) for case, each in values]


def levels() -> tuple[str, ...]:
    """The instruction-set levels to test: all that this machine runs, or in a quick run the best of them.

    On a machine with avx512, avxvnni is tested by tests/ops/products/test_vnni_native.py. The whole grids of avxvnni
    run where it is the best level.
    """
    found = tuple(level for level in available_levels() if level != "avxvnni" or "avx512" not in available_levels())
    return found[-1:] if TIER.quick else found


def seed_of(asked: int | None, daily: bool, today: time.struct_time) -> int:
    """The seed of a run: the one that was asked for, in a daily run the day (20261128), else always the same."""
    return asked if asked is not None else int(time.strftime("%Y%m%d", today)) if daily else FIXED_SEED


def fewer(whole: int, quick: int) -> int:
    """A number of examples, schedules or seconds: `quick` in a quick run, a third at a commit, all in a daily run."""
    return quick if TIER.quick else whole if TIER.daily else max(quick, whole // COMMITS_SHARE)


def examples(whole: int) -> int:
    """How many examples Hypothesis tries of a property."""
    if TIER.daily and not TIER.quick:
        return whole
    share, least = (QUICK_EXAMPLES_SHARE, 4) if TIER.quick else (EXAMPLES_SHARE, 10)
    return min(whole, max(least, whole // share))


def thinned(cases: Sequence[Case], name: str, most: int = KEPT_CASES) -> list[Case]:
    """At most `most` cases of a grid, in their order. `name` makes the choice different for each grid."""
    if len(cases) <= most:
        return list(cases)
    chosen = random.Random(f"{TIER.seed} {name}").sample(range(len(cases)), most)
    return [cases[index] for index in sorted(chosen)]


def in_turn(rows: Iterable[Case], columns: Sequence[Other], most: int) -> list[tuple[Case, Other]]:
    """Each row with `most` of the columns in turn, so that every column has as many rows. The seed chooses which. Daily
    runs go through all pairs."""
    return [
        (row, columns[(place * most + step + TIER.seed) % len(columns)])
        for place, row in enumerate(rows)
        for step in range(most)
    ]


@cache
def files_of(folder: str) -> frozenset[Path]:
    """The files of tests in `folder` that a quick run has."""
    if folder not in KEPT_FILES:
        return frozenset((ROOT / folder).rglob("test_*.py"))
    places = (ROOT / folder / name for name in KEPT_FILES[folder].split())
    return frozenset(place.with_name(f"test_{place.name}.py") for place in places)


def most_of_a_file(folder: str) -> int | None:
    """How many tests of a file in `folder` a quick run has. None means all."""
    if folder in WORLD_TESTS:
        return KEPT_OF_A_WORLD_FILE
    if folder in PROCESS_TESTS:
        return KEPT_OF_A_PROCESS_FILE
    return KEPT_OF_AN_ENGINE_FILE if folder in ENGINE_TESTS else None


def covering(cases: Sequence[Case], values: Sequence[Mapping[str, Hashable]], name: str, part: Kept) -> list[Case]:
    """Some cases of a grid, in its order: each value of every parameter that has few, then more cases up to
    `part.cases`. A parameter that differs from case to case counts as having many."""
    if len(cases) <= part.cases:
        return list(cases)
    counts = Counter(parameter for parameter, _ in {pair for each in values for pair in each.items()})
    few = {parameter for parameter, count in counts.items() if count <= part.values and count < len(cases)}
    pairs = [{pair for pair in each.items() if pair[0] in few} for each in values]
    order = random.Random(f"{TIER.seed} {name}").sample(range(len(cases)), len(cases))
    missing, chosen = set[tuple[str, Hashable]]().union(*pairs), list[int]()
    while missing:
        chosen.append(max(order, key=lambda place: len(pairs[place] & missing)))
        missing -= pairs[chosen[-1]]
    chosen += [place for place in order if place not in chosen][: max(0, part.cases - len(chosen))]
    return [cases[place] for place in sorted(chosen)]


def thinned_where(cases: Sequence[Case], fits: Callable[[Case], bool], name: str, most: int) -> list[Case]:
    """At most `most` of the cases that fit, in their order. `fits` is not called after that, because it may take
    long."""
    order = random.Random(f"{TIER.seed} {name}").sample(range(len(cases)), len(cases))
    return [cases[index] for index in sorted(islice((index for index in order if fits(cases[index])), most))]


def digest_of(paths: Iterable[str] = NATIVE_INPUTS) -> str:
    """A hash of all sources below `paths` and of the seed. It is equal where a run would do the same again."""
    digest = hashlib.sha256(f"{TIER.seed} {levels()}".encode())
    for path in paths:
        place = ROOT / path
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        for file in files:
            if file.suffix in (".py", ".cpp", ".h"):
                content = file.read_bytes()
                digest.update(f"{file.relative_to(ROOT)} {len(content)} ".encode() + content)
    return digest.hexdigest()
