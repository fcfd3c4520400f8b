"""Which waiting sequence may enter: enough pages for all of its known tokens, and no sibling computing the same prompt.

Knows: the cache manager's counts, running sequences.
Must not know: budgets of a step, models.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from twostroke.cache.manager import CacheManager
from twostroke.cache.prefix_tree import Node
from twostroke.scheduler.sequence import Sequence
from twostroke.scheduler.streams import Streams


class PageAdmission:
    """Counts the pages that running sequences still need for what they know, and a watermark, as taken."""

    def __init__(self, cache: CacheManager, watermark_pages: int) -> None:
        self._cache = cache
        self._watermark_pages = watermark_pages
        self._pool_tokens = cache.num_pages * cache.page_tokens
        self.streams: Streams | None = None  # of those that run, where a simulator keeps some

    def fits_ever(self, sequence: Sequence) -> bool:
        """Would it fit an empty pool, with one more token?"""
        return len(sequence.known) < self._pool_tokens

    def fits_now(self, sequence: Sequence, matched: list[Node], running: Collection[Sequence]) -> bool:
        """Are there pages for all its known tokens and one more, beside what was promised?"""
        promised, streams, others = 0, self.streams, running
        if streams is not None and len(streams):
            promised = streams.missing_pages + self._watermark_pages * len(streams)
            others = [each for each in running if each not in streams] if len(streams) < len(running) else ()
        promised += self._cache.missing_pages([(each.request.request_id, len(each.known) + 1) for each in others])
        promised += self._watermark_pages * len([each for each in others if each.computed])
        promised = min(promised, self._cache.num_pages)
        needed = self._cache.pages_for(len(sequence.known) + 1) - len(matched)
        return needed + promised <= self._cache.pages_available(matched)


class SiblingRule:
    """A sibling waits while another of its group computes full pages of the prompt that both share."""

    def __init__(self, page_tokens: int) -> None:
        self._page_tokens = page_tokens

    def holds_back(self, sequence: Sequence, running: Iterable[Sequence]) -> bool:
        """True where the sequence should wait."""
        group = sequence.request.group_id
        siblings = [other for other in running if other.request.group_id == group]
        return any(other.computed < self._shared(other) for other in siblings)

    def _shared(self, sequence: Sequence) -> int:
        """Tokens of the prompt's full pages that a sibling can take over."""
        return len(sequence.request.prompt_token_ids) // self._page_tokens * self._page_tokens
