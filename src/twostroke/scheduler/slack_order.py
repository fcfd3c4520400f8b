"""The order of prompts by slack: who must begin soonest to have its first token in time comes first.

Knows: promises, predicted prefill times, `now`.
Must not know: pages, limits of a step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from heapq import merge
from itertools import islice

from twostroke.scheduler.queues import Queues
from twostroke.scheduler.sequence import Rank, Sequence

INTERACTIVE, BATCH = 0, 1
RESUMED, NEW = 0, 1


class SlackOrder:
    """slack = arrival + TTFT objective - own prefill - now. All slacks shrink alike, so their order never changes:
    a rank is `start_by_s`, the last moment to begin.

    1. preempted streams, whose readers are waiting for the next token;
    2. those that can still be in time, least slack first;
    3. those that are late, by arrival: serving them first would make others late as well.

    Batch work is by arrival. The third group could be overtaken for ever: see scheduler/ageing.py.
    """

    def rank(self, sequence: Sequence) -> Rank:
        """A preempted sequence that has output is asked again."""
        if not sequence.interactive:
            return (BATCH, NEW, 0.0, sequence.number)
        return (INTERACTIVE, RESUMED if sequence.num_output else NEW, start_by_s(sequence), sequence.number)

    def interactive(self, queues: Queues, now: float) -> Iterator[Sequence]:
        """Running and waiting ones, as above."""
        waiting = queues.waiting
        late_from = _place(waiting, (INTERACTIVE, NEW, -1e300, 0))
        late_to = _place(waiting, (INTERACTIVE, NEW, now, 0))
        end = _place(waiting, (BATCH, 0, 0.0, 0))
        running = [s for s in queues.prefilling if s.interactive]
        in_time = [s for s in running if s.num_output or start_by_s(s) >= now]
        late = [*(s for s in running if s not in in_time), *waiting[late_from:late_to]]
        yield from islice(waiting, late_from)
        yield from merge(sorted(in_time, key=start_by_s), islice(waiting, late_to, end), key=start_by_s)
        yield from sorted(late, key=lambda s: s.number)

    def batch(self, queues: Queues, place: bool) -> Iterator[Sequence]:
        """Running ones by admission, then, where there is a place for one more, by arrival."""
        yield from [s for s in queues.prefilling if not s.interactive]
        if place:
            yield from queues.waiting[_place(queues.waiting, (BATCH, 0, 0.0, 0)) :]


def start_by_s(sequence: Sequence) -> float:
    """The last moment to begin what is left of the prompt; without a promise, its arrival."""
    ttft_s, arrival_s = sequence.objectives.ttft_s, sequence.request.arrival_s
    if ttft_s is None:
        return arrival_s
    left = sequence.remaining / len(sequence.known) if sequence.computed else 1.0
    return arrival_s + ttft_s - sequence.prefill_s * left


def _place(waiting: list[Sequence], rank: Rank) -> int:
    return bisect_left(waiting, rank, key=lambda s: s.rank)
