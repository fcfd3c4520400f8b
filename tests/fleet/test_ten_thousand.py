"""All 10,000 schedules of deaths, cuts, hangs, delays and lost or damaged pages; a usual run tries some, by the day."""

from __future__ import annotations

import pytest

from tests.fleet.test_failover import CHAOS, SCHEDULES, run_world
from tests.fleet.test_handover import LOSSES, run_split

BLOCK = 500


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SCHEDULES, BLOCK))
def test_no_schedule_changes_an_answer(first: int) -> None:
    """Half of them with roles. A failure is repeated with `run_world(seed, **CHAOS)` or `run_split(seed, ...)`."""
    for seed in range(first, first + BLOCK):
        try:
            if seed % 2:
                run_split(seed, **CHAOS, **LOSSES)
            else:
                run_world(seed, **CHAOS)
        except Exception as error:
            raise AssertionError(f"schedule {seed}: {error}") from error
