"""Chooses the models whose processes end so that another model has room. As few as possible end, and those that were
idle longest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Leaver(Protocol):
    """The facts about a loaded model whose process might be ended."""

    name: str
    need_bytes: int
    requests: int
    idle_since_s: float
    load_s: float


Each = TypeVar("Each", bound=Leaver)


def choose_leaving(models: Sequence[Each], lacking_bytes: int, lacking_places: float) -> list[Each] | None:
    """Returns the fewest models whose end frees enough memory, and enough of the places that --max-loaded allows.
    Returns None where even all models together do not free enough.

    Among sets of this size it takes the one whose first member comes first in the order of leaving, and so on. In that
    order idle models come before busy ones, then those idle longest, then those that load soonest.
    """
    count = _fewest(models, lacking_bytes, lacking_places)
    if count is None:
        return None
    left = sorted(models, key=lambda each: (each.requests > 0, each.idle_since_s, each.load_s, each.name))
    chosen: list[Each] = []
    while len(chosen) < count:
        for each in left:
            others = sorted((other.need_bytes for other in left if other is not each), reverse=True)
            still = lacking_bytes - sum(one.need_bytes for one in chosen) - each.need_bytes
            if sum(others[: count - len(chosen) - 1]) >= still:
                chosen.append(each)
                left.remove(each)
                break
    return chosen


def _fewest(models: Sequence[Leaver], lacking_bytes: int, lacking_places: float) -> int | None:
    sizes = sorted((each.need_bytes for each in models), reverse=True)
    for count in range(len(sizes) + 1):
        if sum(sizes[:count]) >= lacking_bytes and count >= lacking_places:
            return count
    return None
