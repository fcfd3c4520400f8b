"""The k-th page that cannot be had, for every k: outputs stay what they are alone, and every page comes back."""

from __future__ import annotations

import random

import pytest

from tests.pure.test_schedules import random_requests, run
from twostroke.cache.pages import PagePool
from twostroke.scheduler.limits import SchedulerLimits
from twostroke.types.request import FinishReason

LIMITS = SchedulerLimits(30, 4, 0)


class Failing:
    """Stands before PagePool.allocate and says "none left" at the chosen calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.fail_from = self.fail_until = 0
        real = PagePool.allocate

        def allocate(pool: PagePool) -> int | None:
            self.calls += 1
            return None if self.fail_from <= self.calls < self.fail_until else real(pool)

        monkeypatch.setattr(PagePool, "allocate", allocate)


@pytest.mark.parametrize("in_a_row", [1, 3])
@pytest.mark.parametrize("seed", [4, 9])
def test_every_single_allocation_may_fail(monkeypatch: pytest.MonkeyPatch, seed: int, in_a_row: int) -> None:
    requests = random_requests(random.Random(seed))
    failing = Failing(monkeypatch)
    expected, reasons, _ = run(requests, 60, LIMITS, {})
    total = failing.calls
    assert total > 20
    preempted = 0
    for k in range(1, total + 1):
        failing.calls, failing.fail_from, failing.fail_until = 0, k, k + in_a_row
        found, ended, scheduler = run(requests, 60, LIMITS, {})
        preempted += scheduler.gauges().preemptions_total
        for name, reason in ended.items():
            # Only a sequence that is alone and still finds no page may end with an error; it says what it had.
            if reason is FinishReason.ERROR:
                assert found[name] == expected[name][: len(found[name])]
            else:
                assert (found[name], reason) == (expected[name], reasons[name])
    assert preempted > 0
