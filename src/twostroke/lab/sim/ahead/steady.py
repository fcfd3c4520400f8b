"""Finds steps in which each stream gets one token and nothing else happens to it, and does all of them at once.

A stream is a sequence that decodes one token in each step, without any decision of the scheduler. Skipped steps leave
queues and cache in the same state as steps that are planned and committed. Only the ids of a sequence's pages may
differ (a test in tests/sim compares both). Two kinds of steps can be skipped:

`steps`: all running sequences are streams, and the steps give nothing but their tokens.
- No sequence ends before the last of the steps. In the last step, sequences that reach their length end.
- Pages suffice, some perhaps taken from the prefix tree in the same order, so no sequence is preempted.
- No waiting sequence can be admitted, for lack of places or of pages. Until a sequence ends, room only shrinks.

`begin_one`: begins one step for all streams at once, if there are pages for them. The scheduler plans only the other
sequences of this step.
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
    """Tells a scheduler how many of the next steps do nothing but give each stream one token, and does these steps at
    once. A stream is a sequence that decodes one token in each step."""

    def __init__(
        self, queues: Queues, cache: CacheManager, pages: PageAdmission, limits: SchedulerLimits, streams: Streams
    ) -> None:
        self._queues = queues
        self._cache = cache
        self._pages = pages
        self._streams = streams
        self._most = min(limits.max_sequences, limits.max_step_tokens)

    def steps(self, most: int) -> int:
        """Returns how many of the next steps, up to `most`, only compute the next token of streams (decoding
        sequences). Returns 0 where the next step may also read a prompt or admit a request."""
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
        """Begins the next step for the streams (sequences that decode one token in each step): takes the pages that
        they need. Returns False, and takes no pages, where the scheduler must plan every sequence of that step
        itself."""
        queues, streams = self._queues, self._streams
        if not 0 < len(streams) <= self._most or streams.begin_pages > self._room:
            return False
        others = len(streams) < len(queues.running)
        if others and len(queues.decoding) > len(streams):  # some decoding sequence is not a stream
            return False
        streams.begin_step()
        return True

    def names(self) -> set[str]:
        """Returns the request ids of the streams. The streams are part of the step that is being planned, so the
        scheduler must not preempt them."""
        return self._streams.names()

    def positions(self) -> list[int]:
        """Returns the position that each stream computes next."""
        return self._streams.positions()

    def skip(self, steps: int) -> list[Live]:
        """Gives each stream the tokens of `steps` steps, without events. Returns the sequences that the caller must
        end, because they have reached their length.

        steps: at most the number that `self.steps` has just returned. After `begin_one` has returned True: 1.
        """
        return self._streams.skip(steps)

    def settle(self) -> None:
        """Updates every sequence to the state that it would have if no step had been skipped."""
        if len(self._streams):
            self._streams.settle()

    @property
    def _room(self) -> int:
        return self._cache.pages_left

    def _join(self) -> None:
        """Makes a stream of each running sequence that decodes. A sequence that still reads its prompt is left out. The
        prefix tree may already have a page with the same prompt tokens, and then the sequence's own copy of the page is
        given back. Pages of output tokens are unique."""
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
