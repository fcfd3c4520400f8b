"""Gauges: the requests and pages that a scheduler and its caches hold at one moment, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.scheduler.queues import Queues
from twostroke.types.recorded.verified_guesses import NO_GUESSES, VerifiedGuesses


@dataclass(frozen=True, slots=True)
class Gauges:
    """Counts of one moment; the totals only rise. running_adapters, waiting_adapters: numbers of the adapters that
    running and waiting sequences have. guesses: the counts of verified guesses, which only a replica fills in; an
    engine reports its guesses to its observer."""

    running: int
    waiting: int
    pages_free: int
    pages_used: int
    pages_cached: int
    waste_tokens: int
    preemptions_total: int
    prefix_query_tokens: int
    prefix_hit_tokens: int
    running_adapters: frozenset[int] = frozenset()
    waiting_adapters: frozenset[int] = frozenset()
    guesses: VerifiedGuesses = NO_GUESSES

    @classmethod
    def of(cls, queues: Queues, cache: CacheManager, preemptions: int, query_tokens: int, hit_tokens: int) -> Gauges:
        """Returns the counts of this moment. preemptions, query_tokens, hit_tokens: the totals since the start of the
        scheduler."""
        return cls(
            running=len(queues.running),
            waiting=len(queues.waiting),
            pages_free=cache.pages_free,
            pages_used=cache.pages_used,
            pages_cached=cache.pages_cached,
            waste_tokens=cache.waste_tokens,
            preemptions_total=preemptions,
            prefix_query_tokens=query_tokens,
            prefix_hit_tokens=hit_tokens,
            running_adapters=queues.adapters_of(queues.running),
            waiting_adapters=queues.adapters_of(queues.waiting),
        )
