"""Cache groups: the caches of a program that are managed together. For each sequence, a group has one page table or one
slot.

    FullPages      K and V, or latents, of every position, as long as the sequence lives
    WindowPages    K and V of the positions that a later query can still see; one group for each distinct window
    SequenceStates    states of fixed size; all states of a sequence are one slot
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Cache, PagedKV
from twostroke.types.cache_pools import CachePools, PagePoolSize
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind


class FullPages(Struct, frozen=True, eq=False):
    """Caches whose pages stay as long as the sequence lives."""

    caches: tuple[Cache, ...]
    window: int = 0


class WindowPages(Struct, frozen=True, eq=False):
    """The cache group of all layers whose window is `window` positions, the query's own position included. caches:
    their KV caches, which have one page table for each sequence."""

    caches: tuple[Cache, ...]
    window: int


class SequenceStates(Struct, frozen=True, eq=False):
    """Caches that keep one state of a fixed size for each sequence."""

    caches: tuple[Cache, ...]


PageCaches = FullPages | WindowPages


class CacheGroups(Struct, frozen=True, eq=False):
    """The cache groups of a program. pages: first the group of layers that keep all positions, where there are any,
    then the groups of sliding windows, the shortest window first.

    states: the states of a sequence; None where no layer has a state.
    """

    pages: tuple[PageCaches, ...]
    states: SequenceStates | None

    def pools(self, num_pages: Sequence[int], state_slots: int, chunk_tokens: int) -> CachePools:
        """Returns pools with these numbers of pages, one number for each group. state_slots: the number of slots; it is
        ignored where there are no states."""
        sizes = tuple(PagePoolSize(count, each.window) for count, each in zip(num_pages, self.pages, strict=True))
        return CachePools(sizes, state_slots if self.states is not None else 0, chunk_tokens)


def cache_groups(program: Program) -> CacheGroups:
    """Divides a program's caches into groups: caches of KV pages by their window, and one group of all states."""
    by_window: dict[int, list[Cache]] = {}
    states: list[Cache] = []
    for cache in program.caches:
        if isinstance(cache.kind, PagedKV):
            by_window.setdefault(cache.kind.window, []).append(cache)
        else:
            states.append(cache)
    pages = tuple(
        WindowPages(tuple(by_window[window]), window) if window else FullPages(tuple(by_window[window]))
        for window in sorted(by_window)
    )
    return CacheGroups(pages, SequenceStates(tuple(states)) if states else None)


def page_bytes(group: PageCaches, kv_kind: KVKind) -> int:
    """Returns the bytes of one page in all layers of a group."""
    kinds = [cache.kind for cache in group.caches if isinstance(cache.kind, PagedKV)]
    return PAGE_TOKENS * sum(kind.token_bytes(kv_kind) for kind in kinds)
