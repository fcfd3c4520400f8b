"""The sizes of a cache: the pages of each group of layers, and the slots of states."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PagePoolSize:
    """num_pages: the pages of one group of layers. window: the number of positions that a query of these layers sees,
    its own position included; 0 means all."""

    num_pages: int
    window: int = 0


@dataclass(frozen=True, slots=True)
class CachePools:
    """pages: one pool for each page group, in the order of `program.cache_groups`. state_slots: the number of slots for
    running sequences and snapshots together; 0 for a model without states. chunk_tokens: the most positions of one
    sequence in a step.
    """

    pages: tuple[PagePoolSize, ...]
    state_slots: int = 0
    chunk_tokens: int = 512

    @classmethod
    def full(cls, num_pages: int) -> CachePools:
        """Returns the pools of a cache with one group, whose pages stay until the sequence ends."""
        return cls((PagePoolSize(num_pages),))

    @property
    def num_pages(self) -> tuple[int, ...]:
        """The number of pages of each page group."""
        return tuple(pool.num_pages for pool in self.pages)

    def split(self, count: int) -> tuple[CachePools, CachePools]:
        """Returns two halves: the first `count` groups together with the state slots, and the other groups."""
        first, others = self.pages[:count], self.pages[count:]
        return CachePools(first, self.state_slots, self.chunk_tokens), CachePools(others, 0, self.chunk_tokens)

    @property
    def most_pages(self) -> int | None:
        """The most pages that one sequence can have: the size of the smallest pool without a window. None where every
        pool has a window."""
        return min((pool.num_pages for pool in self.pages if not pool.window), default=None)


def window_pages(window: int, chunk_tokens: int, page_tokens: int) -> int:
    """Returns the most pages that one sequence holds in a window group while `chunk_tokens` positions are computed.

    Before the chunk lie window - 1 positions. They may begin in the middle of a page, and so may the chunk.
    """
    return -(-window // page_tokens) + -(-chunk_tokens // page_tokens) + 1
