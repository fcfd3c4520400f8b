"""Which parts a prompt consists of: pages of each group of layers, and states. Each part has a place of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cache.places import part_place

STATES = -1
"""Stands in the place of a group's number when a part is the state after a page."""

Has = Callable[[int, int], bool]
"""Returns True when the part (group, index of a page) can be had."""


class PartMemory(Protocol):
    """The memory that holds the parts. A part is (group, page id), or (STATES, slot)."""

    def part_bytes(self, group: int) -> int:
        """Returns the number of bytes of each part of this group."""

    def read_part(self, group: int, place: int) -> bytes:
        """Returns a copy of the part's bytes."""

    def write_part(self, group: int, place: int, data: bytes) -> None:
        """Write the part's bytes, of which there are `part_bytes`."""


def place_of(places: Sequence[bytes], group: int, index: int) -> bytes:
    """Returns the place of a part. places: the places of the prompt's pages."""
    return part_place(places[index], group)


def longest_end(cache: CacheManager, most: int, has: Has) -> int:
    """Returns the most pages from which a prompt can go on. has: returns True for the parts that can be had. Pages that
    stay can always be had."""
    windows = [(number, group) for number, group in enumerate(cache.groups) if group.window]
    for end in range(most, 0, -1):
        if cache.states is not None and not has(STATES, end - 1):
            continue
        if all(has(number, index) for number, group in windows for index in range(group.first_needed(end), end)):
            return end
    return 0
