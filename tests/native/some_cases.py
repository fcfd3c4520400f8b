"""A plugin of pytest that keeps some cases of each test, for runs that repeat the grid of the ops in another way."""

from __future__ import annotations

import pytest

from tests.tiers import EVERY_OP, KEPT_REPEATED, thinned


class SomeCases:
    """At most KEPT_REPEATED cases of each test: others for each `name` and each seed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Called by pytest."""
        by_test: dict[str, list[pytest.Item]] = {}
        for item in items:
            test = item.nodeid if item.path.name == EVERY_OP else item.nodeid.partition("[")[0]
            by_test.setdefault(test, []).append(item)
        kept = (thinned(cases, test + self._name, KEPT_REPEATED) for test, cases in by_test.items())
        items[:] = [item for cases in kept for item in cases]
