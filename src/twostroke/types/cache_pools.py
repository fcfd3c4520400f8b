"""How much a cache holds: pages of each group of layers, slots of states."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PagePoolSize:
    """num_pages of one group of layers. window: positions that a query of theirs sees, itself included; 0 means all."""

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
        """One group whose pages stay."""
        return cls((PagePoolSize(num_pages),))

    @property
    def num_pages(self) -> tuple[int, ...]:
        """The number of pages of each page group."""
        return tuple(pool.num_pages for pool in self.pages)

    def split(self, count: int) -> tuple[CachePools, CachePools]:
        """The first `count` groups with the slots, and the others."""
        first, others = self.pages[:count], self.pages[count:]
        return CachePools(first, self.state_slots, self.chunk_tokens), CachePools(others, 0, self.chunk_tokens)

    @property
    def most_pages(self) -> int | None:
        """The most pages of one sequence, as far as pages that stay allow; None where there are none."""
        return min((pool.num_pages for pool in self.pages if not pool.window), default=None)


def window_pages(window: int, chunk_tokens: int, page_tokens: int) -> int:
    """The most pages that one sequence holds in a window group, while a chunk of this many positions is computed.

    After the chunk lie window - 1 positions, which may begin in the middle of a page; so may the chunk.
    """
    return -(-window // page_tokens) + -(-chunk_tokens // page_tokens) + 1
