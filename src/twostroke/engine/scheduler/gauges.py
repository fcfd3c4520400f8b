"""Gauges: the requests and pages that a scheduler and its caches hold at one moment, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.types.verified_guesses import NO_GUESSES, VerifiedGuesses


@dataclass(frozen=True, slots=True)
class Gauges:
    """Counts of one moment; the totals only rise. running_adapters, waiting_adapters: numbers of the adapters that
    running and waiting sequences have. guesses: guesses that replicas verified; an engine's observers see the engine's
    own."""

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
