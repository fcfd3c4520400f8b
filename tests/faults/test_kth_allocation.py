"""The 1st, 2nd, 3rd ... allocation finds no page, until a schedule ends before it reaches that allocation.

This changes nothing else: answers follow the definition, every page comes back, and no request starves.
"""

from __future__ import annotations

import pytest

from tests.faults.faulty import FaultRates
from tests.faults.replay import command
from tests.faults.world import World
from tests.tiers import TIER, fewer

HONEST = FaultRates(0.0)
MOST = 2000
SEEDS = [seed for seed in range(16) if World(seed, HONEST).pools.pages][: fewer(12, quick=4)]
"""A model that has only states allocates no page."""
EACH = 1 if TIER.daily else 15 if TIER.quick else 10
"""A run at a commit lets each tenth allocation fail, a quick one each fifteenth; the seed chooses which. A daily run
lets all fail."""


@pytest.mark.parametrize("in_a_row", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_allocation_may_fail(seed: int, in_a_row: int) -> None:
    preempted = 0
    for k in range(1 + TIER.seed % EACH, MOST, EACH):
        world = World(seed, HONEST, allocation_fails=lambda call, k=k: k <= call < k + in_a_row)
        try:
            outcome = world.run()
        except AssertionError as error:
            raise AssertionError(f"allocation {k}: {error}; replay: {command(seed, k)}") from error
        preempted += outcome.preemptions
        if outcome.allocations < k:
            break
    else:
        raise AssertionError(f"the schedule never passes in {MOST} tries")
    assert k > 1 and (preempted > 0 or EACH > 1)
