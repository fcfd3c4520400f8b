"""Which parts a prompt consists of: pages of each group of layers, and states. Each part has a place of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cache.places import part_place

STATES = -1
"""Stands for the number of a group where a part is the state after a page."""

Has = Callable[[int, int], bool]
"""(group, index of a page): can this part be had?"""


class PartMemory(Protocol):
    """Where the parts lie. A part is (group, page id), or (STATES, slot)."""

    def part_bytes(self, group: int) -> int:
        """The bytes of each part of this group."""

    def read_part(self, group: int, place: int) -> bytes:
        """A copy of its bytes."""

    def write_part(self, group: int, place: int, data: bytes) -> None:
        """Write `part_bytes` bytes."""


def place_of(places: Sequence[bytes], group: int, index: int) -> bytes:
    """The place of a part. places: those of the prompt's pages."""
    return part_place(places[index], group)


def longest_end(cache: CacheManager, most: int, has: Has) -> int:
    """The most pages that a prompt can go on from, where a part is had as `has` says. Pages that stay are had."""
    windows = [(number, group) for number, group in enumerate(cache.groups) if group.window]
    for end in range(most, 0, -1):
        if cache.states is not None and not has(STATES, end - 1):
            continue
        if all(has(number, index) for number, group in windows for index in range(group.first_needed(end), end)):
            return end
    return 0
