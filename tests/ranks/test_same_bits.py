"""Ranks and stages under the exactness law: the bits of one process, in any schedule, for every architecture.

The requests and schedules are those of tests/engine/test_exactness.py: preemption, prefix hits, siblings, grammars,
penalties, prompt log probabilities.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.engine.test_exactness import compilers, core, drive, random_requests  # noqa: F401
from tests.models.families.stored import config_of, generating, write_checkpoint
from tests.ranks.together import Parts, all_pairs, running
from tests.tiers import COVERING, TIER, levels, thinned
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.packer import NativePacker
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.models.common.registry import read_model
from twostroke.ops.passes.division import PIPELINE, TENSOR, Division
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import FORMATS, format_choice
from twostroke.runner.folder import read_folder
from twostroke.types.errors import ConfigError
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights

OTHERS = [families[0] for families in generating().values() if not set(families) & set(COVERING)]
CHOSEN = thinned(COVERING, "ranks", 1) if TIER.quick else [*COVERING, *thinned(OTHERS, "ranks", len(OTHERS) // 4)]
"""Families with all ops and groups of caches, and a fourth of the other architectures, which the seed chooses."""
UNDIVIDED = {"jetmoe", "nemotron-nas"}
"""Families whose heads two ranks cannot divide."""
WIDE = "llama2-multi-head"
Load = Callable[[str, str], tuple[Path, Model, ModelWeights]]


@pytest.fixture(scope="module")
def packer() -> Iterator[NativePacker]:
    made = NativePacker(None, 1)
    yield made
    made.close()


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory, packer: NativePacker) -> Load:
    @cache
    def loaded(family: str, weights: str) -> tuple[Path, Model, ModelWeights]:
        folder = tmp_path_factory.mktemp(family)
        write_checkpoint(family, folder)
        model = read_folder(folder)
        with Checkpoint.open(folder) as checkpoint:
            return folder, model, load_weights(checkpoint, model, format_choice(weights), packer)

    return loaded


def compare(
    load: Load, packer: NativePacker, family: str, division: Division, dice: random.Random, over_sockets: bool
) -> None:
    """Compares one random schedule over ranks with each request alone in one process."""
    weights, kv, level = dice.choice(list(FORMATS)), dice.choice(list(KVKind)), levels()[-1]
    folder, model, whole = load(family, weights)
    requests = random_requests(dice, model.vocab_size)
    limits = SchedulerLimits(dice.choice([4, 16, 61, 512]), dice.choice([1, 3, 4]), dice.choice([0, 2]), 0)
    needed = max(-(-(len(r.prompt_token_ids) + r.max_tokens + 1) // PAGE_TOKENS) for r in requests)
    expected = {}
    ops = CpuOps(level, 1)
    for request in requests:
        alone = core((model, whole), kv, ops, 16, SchedulerLimits(512, 1))
        expected |= drive(alone, [(0, request)], model.vocab_size)[0]
    ops.close()
    parts = Parts.load(division, model, folder, weights, packer)
    made = running(parts, kv, level, needed + dice.choice([0, 3, 60]), limits, over_sockets=over_sockets)
    try:
        arrivals = [(dice.randint(0, 30), request) for request in requests]
        found, _ = drive(made.core, arrivals, model.vocab_size)
    finally:
        made.close()
    assert not made.errors
    assert found == expected


def way_of(place: int, family: str) -> str:
    """One of both ways; the seed chooses it. tests/program/ divides every architecture both ways each time."""
    return PIPELINE if family in UNDIVIDED else (TENSOR, PIPELINE)[(TIER.seed + place) % 2]


@pytest.mark.parametrize(("family", "way"), [(family, way_of(place, family)) for place, family in enumerate(CHOSEN)])
def test_two_processes_give_the_bits_of_one(family: str, way: str, load: Load, packer: NativePacker) -> None:
    dice = random.Random(f"{TIER.seed} {family} {way}")
    compare(load, packer, family, Division(way, 2), dice, dice.random() < 0.5)


@pytest.mark.parametrize("family", sorted(UNDIVIDED))
def test_heads_that_two_ranks_cannot_divide_are_refused(family: str) -> None:
    with pytest.raises(ConfigError, match="cannot be divided among 2 ranks"):
        Division(TENSOR, 2).part(read_model(config_of(family)), 0)


@pytest.mark.parametrize("over_sockets", [False, True], ids=["memory", "sockets"])
@pytest.mark.parametrize("division", all_pairs([2, 4]), ids=lambda each: f"{each.way}-{each.count}")
def test_two_and_four_do(division: Division, over_sockets: bool, load: Load, packer: NativePacker) -> None:
    dice = random.Random(f"{TIER.seed} {division}")
    compare(load, packer, WIDE, division, dice, over_sockets)


def test_a_count_that_does_not_divide_the_heads_says_which_would_do(load: Load) -> None:
    _, model, _ = load(WIDE, "f32")
    with pytest.raises(ConfigError, match="among 3 ranks") as error:
        Division(TENSOR, 3).part(model, 0)
    assert "1 or 2 or 4" in error.value.fix
