"""Chooses the models whose processes end so that another model has room. As few as possible end, and those that were
idle longest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Leaver(Protocol):
    """A loaded model that may be unloaded to make room for another model."""

    name: str
    need_bytes: int
    requests: int
    idle_since_s: float
    load_s: float


Each = TypeVar("Each", bound=Leaver)


def choose_leaving(models: Sequence[Each], lacking_bytes: int, lacking_places: float) -> list[Each] | None:
    """Returns the fewest models to unload so that `lacking_bytes` of memory are free, and `lacking_places` more models
    may be loaded under --max-loaded. Returns None where even all models together do not free enough.

    Several choices of this smallest number may free enough. Then idle models are preferred to busy ones, then those
    idle longest, then those that take the least time to load.
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
