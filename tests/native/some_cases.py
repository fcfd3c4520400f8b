"""A pytest plugin that keeps some cases of each test, for runs that repeat the grid of the ops in another way."""

from __future__ import annotations

import pytest

from tests.tiers import EVERY_OP, KEPT_REPEATED, KEPT_REPEATED_DAILY, TIER, thinned


class SomeCases:
    """Keeps at most KEPT_REPEATED cases of each test, in a daily run KEPT_REPEATED_DAILY. They differ for each `name`
    and each seed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """pytest calls this."""
        most = KEPT_REPEATED_DAILY if TIER.daily else KEPT_REPEATED
        by_test: dict[str, list[pytest.Item]] = {}
        for item in items:
            test = item.nodeid if item.path.name == EVERY_OP else item.nodeid.partition("[")[0]
            by_test.setdefault(test, []).append(item)
        kept = (thinned(cases, test + self._name, most) for test, cases in by_test.items())
        items[:] = [item for cases in kept for item in cases]
