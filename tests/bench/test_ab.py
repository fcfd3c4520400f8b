"""Code that measuring tools share: ways that take turns, and the ratios of their rounds."""

from __future__ import annotations

import pytest
from tools.ab import by_turns, median_ratio, ratios


def test_each_round_runs_every_way_once_and_another_way_begins() -> None:
    order: list[tuple[int, str]] = []

    def way(name: str):  # type: ignore[no-untyped-def]
        def run(number: int) -> int:
            order.append((number, name))
            return 10 * number + "abc".index(name)

        return run

    found = by_turns({name: way(name) for name in "abc"}, rounds=3, warm_rounds=1)
    assert order == [
        *[(0, "a"), (0, "b"), (0, "c")],
        *[(1, "b"), (1, "c"), (1, "a")],
        *[(2, "c"), (2, "a"), (2, "b")],
        *[(3, "a"), (3, "b"), (3, "c")],
    ]
    assert found == {"a": [10, 20, 30], "b": [11, 21, 31], "c": [12, 22, 32]}, "the warm round is left out"


def test_the_ratio_is_that_of_rounds_and_not_of_medians() -> None:
    slow_moment = [1.0, 9.0, 2.0], [2.0, 18.0, 4.0]
    assert ratios(*slow_moment) == [0.5, 0.5, 0.5]
    assert median_ratio([4.0, 9.0, 3.0], [1.0, 3.0, 3.0]) == 3.0
    with pytest.raises(ValueError):
        ratios([1.0], [1.0, 2.0])
