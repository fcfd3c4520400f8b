"""Running sequences that each get one token in every step. The simulator looks at such a stream only when a page is
full or when the stream ends.

A stream's `known` and `computed` are updated once a page and not in each step, so a step touches only a few sequences.
A stream has as many pages as after single steps; only their ids may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.scheduler.sequence import Sequence as Live
from twostroke.types.request import Request

Continuation = Callable[[Request, int, int], Sequence[int]]
"""Takes (request, position of the first token, count) and returns output tokens. Different sequences must get different
tokens, so that no page is found in the prefix tree."""
OnTokens = Callable[[Request, int, int], None]
"""Called with (request, first step, end): the request got a token in each of the steps [first, end)."""


class Streams:
    """The streams of one simulated scheduler: its sequences that get one token in every step. Simulated steps are
    counted from 0; `clock` is the number of the next step.

    bases: for each stream, the position that it computes in the next step, minus clock. since: for each stream, its
    first step. to_grow: the streams that begin a page in the next step and do not own it yet. due: for the number of a
    step, the streams that fill a page in this step. ends: for the number of a step, the streams that get their last
    token in this step.
    """

    def __init__(self, cache: CacheManager, continuation: Continuation, on_tokens: OnTokens) -> None:
        self._cache = cache
        self._continuation = continuation
        self._on_tokens = on_tokens
        self._clock = 0
        self._bases: dict[Live, int] = {}
        self._since: dict[Live, int] = {}
        self._to_grow: list[Live] = []
        self._due: dict[int, list[Live]] = {}
        self._ends: dict[int, list[Live]] = {}
        self._end_steps: list[int] = []  # a heap of the keys of _ends

    def __len__(self) -> int:
        return len(self._bases)

    def __contains__(self, sequence: Live) -> bool:
        return sequence in self._bases

    @property
    def steps_left(self) -> float:
        """The number of steps up to the one in which the first stream ends; infinity where there are no streams."""
        return self._end_steps[0] - self._clock + 1 if self._end_steps else math.inf

    @property
    def begin_pages(self) -> int:
        """The number of new pages that the streams need in the next step."""
        return len(self._to_grow)

    @property
    def missing_pages(self) -> int:
        """The number of pages that the streams need and do not own yet, for all their known tokens and one further
        token each."""
        return len(self._to_grow) + len(self._due.get(self._clock, ()))

    def names(self) -> set[str]:
        """Returns the streams' request ids."""
        return {sequence.request.request_id for sequence in self._bases}

    def positions(self) -> list[int]:
        """Returns the position that each stream computes next."""
        clock = self._clock
        return [base + clock for base in self._bases.values()]

    def pages_in(self, steps: int) -> int:
        """Returns how many new pages the streams need in the next `steps` steps together."""
        size = self._cache.page_tokens
        now = self._clock + size - 1  # a stream owns base + clock tokens, rounded up to pages
        then = now + steps
        return sum([(base + then) // size - (base + now) // size for base in self._bases.values()])

    def join(self, sequence: Live) -> None:
        """Makes a stream of a sequence that decodes."""
        size, clock, computed = self._cache.page_tokens, self._clock, sequence.computed
        self._bases[sequence] = computed - clock
        self._since[sequence] = clock
        if computed % size == 0:
            self._to_grow.append(sequence)
        self._due.setdefault(clock + size - 1 - computed % size, []).append(sequence)
        end_step = clock + sequence.request.max_tokens - sequence.num_output - 1
        if end_step not in self._ends:
            heappush(self._end_steps, end_step)
        self._ends.setdefault(end_step, []).append(sequence)

    def begin_step(self) -> None:
        """Takes the pages of the next step. There must be enough free pages."""
        clock, cache = self._clock, self._cache
        for sequence in self._to_grow:
            if not cache.grow(sequence.request.request_id, self._bases[sequence] + clock + 1):
                raise ValueError("more steps were skipped than were allowed")
        self._to_grow = []

    def skip(self, steps: int) -> list[Live]:
        """Gives every stream (a sequence that decodes one token in each step) the tokens of `steps` steps at once, and
        takes the pages that it needs. `begin_step` may have taken the pages of the first step already. Returns the
        sequences that got their last token; they are no longer streams.

        steps: not more than `steps_left`.
        """
        for _ in range(steps):
            if self._to_grow:
                self.begin_step()
            full = self._due.pop(self._clock, [])
            self._clock += 1
            if full:
                self._fill(full)
        if not self._end_steps or self._end_steps[0] >= self._clock:
            return []
        ended = self._ends.pop(heappop(self._end_steps))
        self._look_at(ended)
        for sequence in ended:
            self._leave(sequence)
        return sorted(ended, key=_admission)

    def settle(self) -> None:
        """Gives every stream the tokens and positions that it should have by now, and ends all streams. The scheduler
        plans these sequences itself again, until `join` makes streams of them anew."""
        self._look_at(self._bases)
        for sequence, since in self._since.items():
            if since < self._clock:
                self._on_tokens(sequence.request, since, self._clock)
        for kept in (self._bases, self._since, self._to_grow, self._due, self._ends, self._end_steps):
            kept.clear()

    def _fill(self, full: list[Live]) -> None:
        """Takes the streams that filled a page in the step that has just ended. They need a new page in the next
        step."""
        self._look_at(full)
        self._to_grow = full.copy()
        self._due.setdefault(self._clock + self._cache.page_tokens - 1, []).extend(full)

    def _look_at(self, sequences: Iterable[Live]) -> None:
        """Brings the tokens, positions and pages of these sequences up to the step `clock`."""
        bases, clock = self._bases, self._clock
        for sequence in sequences:
            computed = bases[sequence] + clock
            owed = computed - sequence.computed
            if owed:
                request, known = sequence.request, sequence.known
                known += self._continuation(request, len(known) - len(request.prompt_token_ids), owed)
                sequence.computed = computed
                self._cache.commit(request.request_id, computed, known)

    def _leave(self, sequence: Live) -> None:
        size = self._cache.page_tokens
        self._on_tokens(sequence.request, self._since.pop(sequence), self._clock)
        computed = self._bases.pop(sequence) + self._clock
        if computed % size == 0:
            self._to_grow.remove(sequence)
        self._due[self._clock + size - 1 - computed % size].remove(sequence)


def _admission(sequence: Live) -> int:
    return sequence.admission or 0
