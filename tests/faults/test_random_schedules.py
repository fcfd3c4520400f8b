"""Thousands of random schedules of the production core, with an executor that fails, delays and loses callers."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.faults.replay import command
from tests.faults.world import Outcome, World
from tests.tiers import TIER, fewer
from twostroke.types.request import FinishReason

ALL_SEEDS = 10_000
NUM_SCHEDULES = 1_000 if TIER.daily else fewer(250, quick=100)
FIRST_SEED = NUM_SCHEDULES * (TIER.seed % (ALL_SEEDS // NUM_SCHEDULES))
"""Each run has seeds of its own: a tenth of all on each day, a fortieth in a whole run, a hundredth in a quick one."""
SHARES = 40


def run_share(seeds: range) -> tuple[list[str], Counter[str]]:
    """The failures, and the counts of what happened in all."""
    failed: list[str] = []
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            seen += sights(World(seed).run())
        except Exception as error:  # each seed that fails is reported, because the seed repeats the failure
            failed.append(f"seed {seed}: {type(error).__name__}: {error}\n    replay: {command(seed)}")
    return failed, seen


def sights(outcome: Outcome) -> Counter[str]:
    """The interesting events of one schedule."""
    found = Counter({str(reason): 1 for reason in outcome.reasons})
    found["steps"] = outcome.steps
    found["preempted"] = outcome.preemptions > 0
    found["shared"] = outcome.prefix_hits > 0
    found["refused"] = outcome.refused > 0
    found["stopped"] = outcome.stopped
    found["searched"] = outcome.searched > 0
    found["guessed right"] = outcome.accepted > 0
    found["guessed wrong"] = outcome.accepted < outcome.guessed
    return found


def all_shares() -> Iterator[tuple[list[str], Counter[str]]]:
    """The results of `run_share` for each share. A quick run has too few for processes of their own."""
    last = FIRST_SEED + NUM_SCHEDULES
    shares = [range(FIRST_SEED + i, last, SHARES) for i in range(SHARES)]
    if TIER.quick:
        yield from map(run_share, shares)
        return
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(run_share, shares)


def test_thousands_of_schedules_keep_every_invariant() -> None:
    failed: list[str] = []
    seen: Counter[str] = Counter()
    for lines, counts in all_shares():
        failed += lines
        seen += counts
    assert not failed, f"{len(failed)} of {NUM_SCHEDULES} schedules failed:\n" + "\n".join(failed[:20])
    # Schedules in which nothing happens prove nothing.
    for sight in (
        *map(str, FinishReason),
        "preempted",
        "shared",
        "refused",
        "stopped",
        "searched",
        "guessed right",
        "guessed wrong",
    ):
        assert seen[sight] > NUM_SCHEDULES // 100, f"{sight}: {seen}"


@pytest.mark.parametrize("seed", [1, 7, 5000])
def test_a_seed_replays_exactly(seed: int) -> None:
    stories: list[list[str]] = [[], []]
    outcomes = [World(seed, say=story.append).run() for story in stories]
    assert stories[0] == stories[1] and outcomes[0] == outcomes[1]
    assert stories[0]
