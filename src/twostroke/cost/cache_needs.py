"""Bytes of the caches of a model's groups, and how a budget of bytes becomes pools.

The rule (docs/adr/0019-cache-groups.md). Each page group has a pool of its own, so that one group cannot use up the
room of another. Where groups that keep every position and groups with a window share the budget, each pool gets the
share that a typical sequence needs. Such a sequence has 4,096 positions or four windows, whichever is more, and no more
than the context. Shorter sequences run out of window pages first, longer ones of the other pages. No pool gets more
than can be of use, unless a budget was asked for.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from twostroke.types.cache_pools import CachePools, PagePoolSize, window_pages
from twostroke.types.spec.formats import PAGE_TOKENS

TYPICAL_TOKENS, TYPICAL_WINDOWS = 4096, 4
WINDOWS_KEPT = 2
"""For layers with sliding windows, a useful pool holds the pages of this many windows for each running sequence. One is
the sequence's own, the other that of a cached prefix."""
SLOTS_A_SEQUENCE = 4
"""A sequence has use for this many state slots: its state, its newest snapshot, and two snapshots of prompts and
prefixes."""
STATES_SHARE = 2
"""Where there are pages too, slots take 1 / STATES_SHARE of the budget at most."""


class GroupBytes(NamedTuple):
    """The page size of one cache group. page_bytes: the bytes of one page in all layers of the group. window: the
    positions that a row sees; 0 where the group keeps every position."""

    page_bytes: int
    window: int = 0


class CacheNeeds(Struct, frozen=True):
    """The figures from which the bytes of a model's caches follow. groups: the page groups, in the order of
    `program.cache_groups`. state_bytes: the bytes of one slot of states; 0 without states.

    context_tokens: the longest sequence. max_sequences: the most sequences that run at once. chunk_tokens: the most
    positions of one sequence in a step.
    """

    groups: tuple[GroupBytes, ...]
    state_bytes: int
    context_tokens: int
    max_sequences: int
    chunk_tokens: int

    @property
    def token_bytes(self) -> int:
        """The bytes of K and V of one position in all layers. Layers with a sliding window give theirs back when the
        window has moved past the position."""
        return sum(group.page_bytes for group in self.groups) // PAGE_TOKENS

    @property
    def growing_bytes(self) -> int:
        """The bytes of K and V of one position in the layers that keep every position."""
        return sum(group.page_bytes for group in self.groups if not group.window) // PAGE_TOKENS

    def window_of(self, group: GroupBytes) -> int:
        """Returns the group's window in positions, and at most the context: no sequence is longer."""
        return min(group.window, self.context_tokens)

    def pages(self, group: GroupBytes, num_tokens: int) -> int:
        """The most pages that a sequence holds at one time until it has `num_tokens` positions."""
        pages = -(-num_tokens // PAGE_TOKENS)
        if not group.window:
            return pages
        return min(pages, window_pages(self.window_of(group), min(self.chunk_tokens, num_tokens), PAGE_TOKENS))

    def sequence_bytes(self, num_tokens: int) -> int:
        """The most bytes that a sequence takes at one time until it has `num_tokens` positions."""
        return (
            self.window_bytes(num_tokens)
            + self.state_bytes
            + sum(group.page_bytes * self.pages(group, num_tokens) for group in self.groups if not group.window)
        )

    def window_bytes(self, num_tokens: int) -> int:
        """The part of `sequence_bytes` in cache groups with a window. It stops growing where the sequence is longer
        than the window."""
        return sum(group.page_bytes * self.pages(group, num_tokens) for group in self.groups if group.window)

    def pools(self, budget_bytes: int, bounded: bool) -> CachePools:
        """Returns the pools that fit into `budget_bytes`. bounded: True when no pool may get more pages or slots than
        can be of use.
        """
        slots = self._slots(budget_bytes, bounded)
        left = budget_bytes - slots * self.state_bytes
        typical = min(self.context_tokens, max([TYPICAL_TOKENS, *(TYPICAL_WINDOWS * g.window for g in self.groups)]))
        typical_bytes = sum(group.page_bytes * self.pages(group, typical) for group in self.groups)
        counts: dict[int, int] = {}
        for index, group in enumerate(self.groups):
            if group.window:
                count = left * self.pages(group, typical) // typical_bytes
                counts[index] = min(count, self._useful(group)) if bounded else count
        left -= sum(self.groups[index].page_bytes * count for index, count in counts.items())
        together = sum(group.page_bytes for group in self.groups if not group.window)  # all keep the same positions
        for index, group in enumerate(self.groups):
            if not group.window:
                counts[index] = min(left // together, self._useful(group) if bounded else left)
        sizes = [PagePoolSize(max(0, counts[i]), self.window_of(group)) for i, group in enumerate(self.groups)]
        return CachePools(tuple(sizes), max(0, slots), self.chunk_tokens)

    def bytes_of(self, pools: CachePools) -> int:
        """The bytes of all pools together."""
        pages = sum(group.page_bytes * pool.num_pages for group, pool in zip(self.groups, pools.pages, strict=True))
        return pages + self.state_bytes * pools.state_slots

    def least_pools(self) -> CachePools:
        """The smallest pools that can run anything. A cache group with a sliding window gets the pages of the window
        and one more. A group that keeps every position gets one page, and states get one slot."""
        least = [window_pages(self.window_of(g), 1, PAGE_TOKENS) if g.window else 1 for g in self.groups]
        sizes = [PagePoolSize(count, self.window_of(g)) for count, g in zip(least, self.groups, strict=True)]
        return CachePools(tuple(sizes), 1 if self.state_bytes else 0, self.chunk_tokens)

    def holds(self, pools: CachePools, least: CachePools) -> bool:
        """Whether every pool of `pools` is at least as large as the same pool of `least`."""
        pages = zip(pools.pages, least.pages, strict=True)
        return pools.state_slots >= least.state_slots and all(a.num_pages >= b.num_pages for a, b in pages)

    def tokens(self, pools: CachePools) -> int:
        """Returns how many positions of running sequences fit into the pools. States and windows stop growing with the
        sequence: where they are the limit, each sequence that fits counts with the full context."""
        found = [self.context_tokens * pools.state_slots] if self.state_bytes else []
        for group, pool in zip(self.groups, pools.pages, strict=True):
            whole = (
                pool.num_pages // self.pages(group, self.context_tokens) * self.context_tokens if group.window else 0
            )
            found.append(max(whole, pool.num_pages * PAGE_TOKENS))
        return min(found)

    def words(self) -> str:
        """Returns a text for users: the bytes of each token, and the most bytes that one sequence takes."""
        grows = self.growing_bytes
        windows = self.window_bytes(self.context_tokens)
        said = [f"{grows:,} bytes a token"] if grows or not (windows or self.state_bytes) else []
        said += [f"at most {windows:,} bytes a sequence within windows"] if windows else []
        said += [f"{self.state_bytes:,} bytes a sequence of states"] if self.state_bytes else []
        return ", ".join(said)

    def _useful(self, group: GroupBytes) -> int:
        """Returns the most pages of this group that can be of use: those that running sequences fill, and for windows
        as many again for cached prefixes."""
        if not group.window:
            return -(-self.context_tokens * self.max_sequences // PAGE_TOKENS)
        return WINDOWS_KEPT * self.max_sequences * self.pages(group, self.context_tokens)

    def _slots(self, budget_bytes: int, bounded: bool) -> int:
        if not self.state_bytes:
            return 0
        most = SLOTS_A_SEQUENCE * self.max_sequences
        if not self.groups:
            return min(most, budget_bytes // self.state_bytes) if bounded else budget_bytes // self.state_bytes
        return min(most, budget_bytes // STATES_SHARE // self.state_bytes)
