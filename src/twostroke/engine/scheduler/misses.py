"""Finds why a prompt's prefix was not found. The prefix tree knows the reason, unless a running sequence is about to
put the prefix there.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from twostroke.engine.cache.manager import CacheManager, Prefix
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.recorded.prefix import MissReason, PrefixMiss


class MissReasons:
    """Explains prefix misses: why prompt tokens of a request were not found in the prefix tree. The scheduler calls
    `explain` once for each request, at its first admission."""

    def __init__(self, cache: CacheManager) -> None:
        self._cache = cache

    def explain(self, sequence: Sequence, matched: Prefix, running: Iterable[Sequence]) -> PrefixMiss | None:
        """Returns why the prefix was not found; None when all that can be shared was found."""
        if sequence.to_score:
            return PrefixMiss(MissReason.SCORED, 0)
        request = sequence.request
        miss = self._cache.miss(request.cache_salt, sequence.keys, matched)
        if miss is None or miss.reason is MissReason.SHORT:
            return miss
        page_tokens = self._cache.page_tokens
        found = len(matched) * page_tokens
        keys = sequence.keys
        page = keys[found : found + page_tokens]
        first = page[0]
        for other in running:
            known = other.keys
            if len(known) <= found or known[found] != first:
                continue  # most sequences end here
            if other is sequence or other.request.cache_salt != request.cache_salt:
                continue
            if known[found : found + page_tokens] == page and known[:found] == keys[:found]:
                shared = _common_tokens(sequence, other, found) // page_tokens * page_tokens
                lost_tokens = min(shared, len(sequence.known) - 1) - found
                return replace(
                    miss,
                    reason=MissReason.UNFINISHED,
                    position=found,
                    lost_tokens=lost_tokens,
                    by=other.request.request_id,
                )
        return miss


def _common_tokens(one: Sequence, other: Sequence, start: int) -> int:
    """Returns the length of the longest common beginning; the first `start` tokens are known to be equal."""
    mine, others = one.keys, other.keys
    end = min(len(mine), len(others))
    return next((i for i in range(start, end) if mine[i] != others[i]), end)
