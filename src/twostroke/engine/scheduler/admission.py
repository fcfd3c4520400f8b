"""Which waiting sequence may run: there must be enough pages for all of its known tokens, and no other completion of
its request may be computing the same prompt."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from twostroke.engine.cache.manager import CacheManager, Prefix
from twostroke.engine.scheduler.sequence import Sequence


class PageAdmission:
    """Decides for which waiting sequences there are enough pages. The pages that running sequences still need for their
    known tokens, and a watermark for each of them, count as taken."""

    def __init__(self, cache: CacheManager, watermark_pages: int) -> None:
        self._cache = cache
        self._watermark_pages = watermark_pages
        self._most_positions = cache.most_positions

    def cached_tokens(self, sequence: Sequence) -> int:
        """Returns how many of the sequence's known tokens are in the prefix tree at this moment, so that they need not
        be computed."""
        matched = self._cache.match(sequence.request.cache_salt, sequence.keys)
        return self._cache.spared_tokens(matched, len(sequence.known))

    def fits_ever(self, sequence: Sequence) -> bool:
        """Returns True when an empty pool would have room for the sequence and one more token."""
        return len(sequence.known) < self._most_positions

    def too_long(self, sequence: Sequence) -> str:
        """Returns the text of an error for a sequence that does not fit ever."""
        return f"the request has {len(sequence.known)} tokens and the KV pool has room for {self._most_positions}"

    def fits_now(self, sequence: Sequence, matched: Prefix, running: Collection[Sequence]) -> bool:
        """Returns True when there are pages for all known tokens of the sequence and one more, next to what the running
        sequences need. matched: the cached beginning of the sequence."""
        return self.fits_beside(sequence, matched, 0, running)

    def fits_beside(self, sequence: Sequence, matched: Prefix, promised: int, others: Collection[Sequence]) -> bool:
        """Returns True when there are pages for all known tokens of the sequence and one more, next to what the
        sequences `others` need. promised: the number of pages in each group that must stay free in addition. matched:
        the cached beginning of the sequence."""
        promised += self._watermark_pages * len([each for each in others if each.computed])
        missing = self._cache.missing_pages([(each.request.request_id, len(each.known) + 1) for each in others])
        return self._cache.fits(len(sequence.known) + 1, matched, [promised + count for count in missing])


class SiblingRule:
    """Lets a completion of a request with n > 1 wait while another one computes full pages of the prompt, so that these
    pages are computed once and shared."""

    def __init__(self, page_tokens: int) -> None:
        self._page_tokens = page_tokens

    def holds_back(self, sequence: Sequence, running: Iterable[Sequence]) -> bool:
        """Returns True when the sequence is to wait, because a running completion of the same request computes its
        prompt."""
        group = sequence.request.group_id
        siblings = [other for other in running if other.request.group_id == group]
        return any(other.prompt_under_way or other.computed < self._shared(other) for other in siblings)

    def _shared(self, sequence: Sequence) -> int:
        """Returns the number of tokens in the prompt's full pages, which the other completions of the request share."""
        return len(sequence.request.prompt_token_ids) // self._page_tokens * self._page_tokens
