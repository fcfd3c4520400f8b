"""How caches limit the chunks of prompts. A cache with a window limits their length, and a cache with states ends a
chunk where a snapshot of the states is taken."""

from __future__ import annotations

from msgspec import Struct

from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.scheduler.limits.limits import Limiter, SchedulerLimits, StepLoad
from twostroke.engine.scheduler.sequence import Sequence


class WindowRoom(Struct, frozen=True):
    """Satisfies Limiter: a chunk has at most max_chunk_tokens. This is the number of positions for which a sequence has
    pages in addition to its window, in a page pool with a window."""

    max_chunk_tokens: int

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        return min(wanted_tokens, self.max_chunk_tokens)


class SnapshotPoints:
    """A chunk ends where a snapshot of the sequence's state is to be taken."""

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """Returns the tokens up to the next position of the chunk at which a snapshot is to be taken; all wanted tokens
        where there is none."""
        computed = sequence.computed
        for point in sequence.points:
            if computed < point < computed + wanted_tokens:
                return point - computed
        return wanted_tokens


def cache_limiters(cache: CacheManager, limits: SchedulerLimits) -> tuple[Limiter, ...]:
    """Returns the limiters of chunks that this cache needs: WindowRoom for windows, SnapshotPoints for states."""
    found: list[Limiter] = []
    if cache.chunk_tokens < limits.max_step_tokens:
        found.append(WindowRoom(cache.chunk_tokens))
    if cache.states is not None:
        found.append(SnapshotPoints())
    return tuple(found)
