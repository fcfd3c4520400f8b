"""Finds why a prompt's prefix was not found. The prefix tree knows the reason, unless a running sequence is about to
put the prefix there.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from twostroke.engine.cache.manager import CacheManager, Prefix
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.prefix import MissReason, PrefixMiss


class MissReasons:
    """Asked once for each request, at its first admission."""

    def __init__(self, cache: CacheManager) -> None:
        self._cache = cache

    def explain(self, sequence: Sequence, matched: Prefix, running: Iterable[Sequence]) -> PrefixMiss | None:
        """None where all that can be shared was found."""
        if sequence.to_score:
            return PrefixMiss(MissReason.SCORED, 0)
        request = sequence.request
        miss = self._cache.miss(request.cache_salt, sequence.known, matched)
        if miss is None or miss.reason is MissReason.SHORT:
            return miss
        page_tokens = self._cache.page_tokens
        found = len(matched) * page_tokens
        page = sequence.known[found : found + page_tokens]
        first = page[0]
        for other in running:
            known = other.known
            if len(known) <= found or known[found] != first:
                continue  # as most are
            if other is sequence or other.request.cache_salt != request.cache_salt:
                continue
            if known[found : found + page_tokens] == page and known[:found] == sequence.known[:found]:
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
    """Length of the longest common beginning; the first `start` tokens are known to be equal."""
    end = min(len(one.known), len(other.known))
    return next((i for i in range(start, end) if one.known[i] != other.known[i]), end)
