"""Measures two or more ways of doing the same work, by turns. The measuring tools share this module.

    found = by_turns({"off": plain, "on": guessing}, rounds=7)
    print(median_ratio(found["on"], found["off"]))

Each round runs every way once, and each round begins with another way. A slow moment of the machine meets all ways of a
round, so it changes their ratio less than it changes their times.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import median
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)
Figure = TypeVar("Figure")


def by_turns(
    ways: Mapping[Name, Callable[[int], Figure]], rounds: int, warm_rounds: int = 1
) -> dict[Name, list[Figure]]:
    """Returns the figures of each way, one for each round. A way is called with the number of the round, from 0.

    The first `warm_rounds` rounds are run before the others, and their figures are left out.
    """
    found: dict[Name, list[Figure]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(warm_rounds + rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            figure = ways[name](number)
            if number >= warm_rounds:
                found[name].append(figure)
    return found


def ratios(own: Sequence[float], base: Sequence[float]) -> list[float]:
    """Returns `own` divided by `base`, for each round."""
    return [one / other for one, other in zip(own, base, strict=True)]


def median_ratio(own: Sequence[float], base: Sequence[float]) -> float:
    """Returns the median of the ratios `own` / `base` of all rounds."""
    return median(ratios(own, base))
