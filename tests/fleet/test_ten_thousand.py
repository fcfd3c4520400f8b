"""10,000 schedules of deaths, cuts, hangs, delays and lost or damaged pages.

A daily run has a tenth of them, and a whole run has a fortieth.
"""

from __future__ import annotations

import pytest

from tests.fleet.test_failover import CHAOS, SCHEDULES, run_world
from tests.fleet.test_handover import LOSSES, run_split
from tests.tiers import TIER

BLOCK = 250
SHARE = SCHEDULES // (10 if TIER.daily else 40)
FIRST = SHARE * (TIER.seed % (SCHEDULES // SHARE))
"""The seed chooses the share, so that daily runs go through all schedules."""
FEWEST, MOST = 2, 8
"""The requests of a world. The schedules of each run have more (test_failover.py)."""


def requests_of(seed: int) -> int:
    """The number of requests of a world. In small worlds, which end sooner, replicas are idle now and then."""
    return FEWEST + seed // 2 % (MOST - FEWEST + 1)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST, FIRST + SHARE, BLOCK))
def test_no_schedule_changes_an_answer(first: int) -> None:
    """Half of the worlds have roles. A failure can be repeated by the call below with its seed."""
    for seed in range(first, first + BLOCK):
        try:
            if seed % 2:
                run_split(seed, count=requests_of(seed), **CHAOS, **LOSSES)
            else:
                run_world(seed, requests_of(seed), **CHAOS)
        except Exception as error:
            raise AssertionError(f"schedule {seed}: {error}") from error
