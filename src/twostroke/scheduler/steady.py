"""Steps in a row of which each gives every running sequence one token, and nothing else happens: found, and skipped.

A simulator skips them; the engine never does. What is skipped leaves queues and cache as if each step had been planned
and committed, but for which page ids are whose (tests/sim holds it):

- no sequence ends before the last of them, in which those that reach their length do;
- pages suffice, some perhaps taken from the prefix tree in the same order, so nobody is preempted;
- who waits cannot be admitted: there is no place in a step, or no room, and room only shrinks while nobody ends.

Knows: queues, the cache manager, admission.
Must not know: times, limiters that are not budgets, who invents the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twostroke.cache.manager import CacheManager
from twostroke.scheduler.admission import PageAdmission
from twostroke.scheduler.limits import SchedulerLimits
from twostroke.scheduler.queues import Queues
from twostroke.scheduler.sequence import Sequence as Live
from twostroke.types.request import Request

Continuation = Callable[[Request, int, int], Sequence[int]]
"""(request, position of the first, count) -> output tokens. No two sequences may be given equal pages of them."""


class SteadyDecode:
    """Looks ahead for one scheduler, between steps."""

    def __init__(self, queues: Queues, cache: CacheManager, pages: PageAdmission, limits: SchedulerLimits) -> None:
        self._queues = queues
        self._cache = cache
        self._pages = pages
        self._most = min(limits.max_sequences, limits.max_step_tokens)

    def steps(self, most: int) -> int:
        """How many of the next steps, up to `most`, are such; 0 where the next one may be different."""
        running = self._queues.running
        if not 0 < len(running) <= self._most:
            return 0
        # The page with a prompt's last token may be in the tree already, and then a page is given back at once; from
        # the first output token on, pages are like no other.
        longest = 0
        for sequence in running:
            known, request = len(sequence.known), sequence.request
            num_output = known - len(request.prompt_token_ids)
            if known - sequence.computed != 1 or num_output == 0:
                return 0
            left = request.max_tokens - num_output
            if left < most:
                most = left
            if known > longest:
                longest = known
        if self._queues.waiting and len(running) < self._most and self._may_enter(self._queues.waiting[0]):
            return 0
        cache = self._cache
        most = min(most, cache.num_pages * cache.page_tokens - longest - 1)
        room = cache.pages_free + cache.pages_cached
        if len(running) * (most // cache.page_tokens + 1) > room:
            while most > 0 and self._new_pages(most) > room:
                most //= 2
        return max(0, most)

    def positions(self) -> list[int]:
        """The position that each running sequence computes next."""
        return [sequence.computed for sequence in self._queues.running]

    def requests(self) -> list[Request]:
        """Who runs, in the order of `positions`."""
        return [sequence.request for sequence in self._queues.running]

    def skip(self, steps: int, continuation: Continuation) -> list[Live]:
        """Do what so many steps would do, but for telling; returns who has reached its length and must be ended.

        steps: no more than `steps` has just allowed.
        """
        ended, cache = [], self._cache
        for sequence in self._queues.running:
            request, known = sequence.request, sequence.known
            num_output = len(known) - len(request.prompt_token_ids)
            sequence.computed = computed = sequence.computed + steps
            known += continuation(request, num_output, steps)
            if not cache.grow(request.request_id, computed):
                raise ValueError(f"{steps} steps were skipped and are more than were allowed")
            cache.commit(request.request_id, computed, known)
            if num_output + steps >= request.max_tokens:
                ended.append(sequence)
        return ended

    def _may_enter(self, first: Live) -> bool:
        # All running sequences have read their prompts, so no sibling holds anybody back.
        if self._pages.fits_now(first, [], self._queues.running):
            return True  # a page that is found needs one page less and takes one at most
        matched = self._cache.match(first.request.cache_salt, first.known)
        return self._pages.fits_now(first, matched, self._queues.running)

    def _new_pages(self, steps: int) -> int:
        running = self._queues.running
        return self._cache.missing_pages([(each.request.request_id, each.computed + steps) for each in running])
