"""Two or more ways of doing the same work, measured by turns: what measuring tools share.

    found = by_turns({"off": plain, "on": guessing}, rounds=7)
    print(median_ratio(found["on"], found["off"]))

Each round runs every way once, and the first of them is another one in each round. A slow moment of the machine meets
all ways of a round, so it changes their ratio less than it changes their times.
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
    """What each way gave in each round. A way is called with the round's number, which begins with 0.

    The figures of the first `warm_rounds` rounds, which come before the others, are left out.
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
    """own by base, round by round."""
    return [one / other for one, other in zip(own, base, strict=True)]


def median_ratio(own: Sequence[float], base: Sequence[float]) -> float:
    """The median of the ratios of the rounds."""
    return median(ratios(own, base))
