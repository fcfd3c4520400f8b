"""Steps in which each stream gets one token and nothing else happens to it: found, and done all at once.

Skipped steps leave queues and cache as planned and committed ones would. Only the page ids of single sequences may
differ (a test in tests/sim compares both). Two kinds of steps can be skipped:

`steps`: all running sequences are streams, and the steps give nothing but their tokens.
- No sequence ends before the last of the steps. In that one the sequences end that reach their length.
- Pages suffice, some perhaps taken from the prefix tree in the same order, so no sequence is preempted.
- No waiting sequence can be admitted: there is no place in a step, or no room. Room only shrinks while none ends.

`begin_one`: the others are planned as ever, next to streams that are not looked at; the streams' pages are there.
"""

from __future__ import annotations

from twostroke.engine.cache.manager import NOTHING_CACHED, CacheManager
from twostroke.engine.scheduler.admission import PageAdmission
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import Sequence as Live
from twostroke.lab.sim.ahead.streams import Streams
from twostroke.types.plan import Role


class SteadyDecode:
    """Looks ahead for one scheduler, between steps."""

    def __init__(
        self, queues: Queues, cache: CacheManager, pages: PageAdmission, limits: SchedulerLimits, streams: Streams
    ) -> None:
        self._queues = queues
        self._cache = cache
        self._pages = pages
        self._streams = streams
        self._most = min(limits.max_sequences, limits.max_step_tokens)

    def steps(self, most: int) -> int:
        """How many of the next steps, up to `most`, hold streams alone; 0 where the next one may be different."""
        queues, streams = self._queues, self._streams
        running = queues.running
        if not 0 < len(running) <= self._most:
            return 0
        self._join()
        if len(streams) < len(running):
            return 0
        if queues.waiting and len(running) < self._most and self._may_run(queues.waiting[0]):
            return 0
        most = min(most, int(streams.steps_left))
        room = self._room
        if len(running) * (most // self._cache.page_tokens + 1) > room:
            while most > 0 and streams.pages_in(most) > room:
                most //= 2
        return most

    def begin_one(self) -> bool:
        """Take the pages of the streams' next step; False where it must be planned for each of them."""
        queues, streams = self._queues, self._streams
        if not 0 < len(streams) <= self._most or streams.begin_pages > self._room:
            return False
        others = len(streams) < len(queues.running)
        if others and len(queues.decoding) > len(streams):  # some decoding sequence is not a stream
            return False
        streams.begin_step()
        return True

    def names(self) -> set[str]:
        """Request ids of the streams: their pages cannot be taken, because they are in the step."""
        return self._streams.names()

    def positions(self) -> list[int]:
        """The position that each stream computes next."""
        return self._streams.positions()

    def skip(self, steps: int) -> list[Live]:
        """Do what `steps` steps would do for the streams; no event is made. Returns the sequences that must be ended,
        because they have reached their length.

        steps: no more than `steps` has just allowed, or 1 where `begin_one` did.
        """
        return self._streams.skip(steps)

    def settle(self) -> None:
        """Make every sequence what it would be if nothing had been skipped."""
        if len(self._streams):
            self._streams.settle()

    @property
    def _room(self) -> int:
        return self._cache.pages_left

    def _join(self) -> None:
        """The page with a prompt's last token may be in the tree already, and then a page is given back at once; from
        the first output token on, pages are like no other."""
        streams, running = self._streams, self._queues.running
        if len(streams) == len(running):
            return
        most_positions = self._cache.most_positions
        new = len(running) - len(streams)
        for sequence in reversed(running):  # the newest sequences come last
            if new == 0:
                break
            if sequence in streams:
                continue
            new -= 1
            if sequence.role is not Role.DECODE:
                continue
            if len(sequence.request.prompt_token_ids) + sequence.request.max_tokens <= most_positions:
                streams.join(sequence)

    def _may_run(self, first: Live) -> bool:
        # All running sequences have read their prompts, so no sibling holds back another one.
        if self._pages.fits_now(first, NOTHING_CACHED, self._queues.running):
            return True  # each cached page saves one page and occupies at most one
        matched = self._cache.match(first.request.cache_salt, first.known)
        return self._pages.fits_now(first, matched, self._queues.running)
