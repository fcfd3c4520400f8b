"""The parts that a prompt consists of in the caches: the pages of each cache group, and states. The name of a part is
its place: a hash of all tokens up to its end, and of its group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cache.places import part_place

STATES = -1
"""Is used instead of a group's number when a part is the state after a page."""

Has = Callable[[int, int], bool]
"""Called with (group, index of a page); returns True when this page or state is in memory or on the disk."""


class PartMemory(Protocol):
    """The memory that holds pages of K and V, and states. A page is given as (group, page id), a state as (STATES,
    slot)."""

    def part_bytes(self, group: int) -> int:
        """Returns the number of bytes of each page of this group, or of each state."""

    def read_part(self, group: int, place: int) -> bytes:
        """Returns a copy of the bytes of a page or state. place: its page id or slot."""

    def write_part(self, group: int, place: int, data: bytes) -> None:
        """Write all `part_bytes` bytes of a page or state. place: its page id or slot."""


def place_of(places: Sequence[bytes], group: int, index: int) -> bytes:
    """Returns the place of a page in one group, or of a state: a hash of the tokens up to the page's end and of the
    group. places: for each page of the prompt, the hash of its tokens."""
    return part_place(places[index], group)


def longest_end(cache: CacheManager, most: int, has: Has) -> int:
    """Returns the largest number of pages, at most `most`, after which a prompt can go on: the pages of its windows and
    its state must be available (`has`). The pages of groups without a window are taken to be available."""
    windows = [(number, group) for number, group in enumerate(cache.groups) if group.window]
    for end in range(most, 0, -1):
        if cache.states is not None and not has(STATES, end - 1):
            continue
        if all(has(number, index) for number, group in windows for index in range(group.first_needed(end), end)):
            return end
    return 0
