"""The order in which prompts are computed under objectives: a sequence whose TTFT was promised stays before later ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import Rank, Sequence

INTERACTIVE, BATCH = 0, 1
RESUMED, PROMISED, HELD, TOO_LONG = 0, 1, 2, 3


class PromiseOrder:
    """Orders sequences by class, then by arrival, so that a later request never makes an earlier promise late:

    1. preempted streams: their readers wait for the next token;
    2. sequences whose TTFT was promised;
    3. held sequences, which wait for such a promise (engine/scheduler/objectives/ttft_gate.py): they do not
       begin;
    4. sequences whose own prompt takes longer than the objective even when it is alone. If they came first, they would
       make all others late and be late as well.

    Batch work comes after these. Without AgeingTurns (engine/scheduler/ageing.py) the last class could wait for ever.
    """

    def rank(self, sequence: Sequence) -> Rank:
        """Returns the key by which a waiting sequence is sorted. It is computed when the sequence is queued, and again
        after a preemption."""
        if not sequence.interactive:
            return (BATCH, PROMISED, 0.0, sequence.number)
        if sequence.num_output:
            return (INTERACTIVE, RESUMED, 0.0, sequence.number)
        return (INTERACTIVE, TOO_LONG if too_long(sequence) else PROMISED, 0.0, sequence.number)

    def held(self, sequence: Sequence) -> Rank:
        """Returns the sort key of a held sequence, which waits without a promised TTFT: after all sequences that have
        one."""
        return (INTERACTIVE, HELD, 0.0, sequence.number)

    def interactive(self, queues: Queues) -> Iterator[Sequence]:
        """Yields the interactive sequences that wait or are in prefill, in order of their sort keys. Held sequences,
        which wait without a promised TTFT, are left out."""
        end = _place(queues.waiting, (BATCH, 0, 0.0, 0))
        running = [s for s in queues.prefilling if s.interactive]
        ready = [s for s in queues.waiting[:end] if s.rank[1] != HELD]
        yield from sorted([*running, *ready], key=lambda s: s.rank)

    def batch(self, queues: Queues, place: bool) -> Iterator[Sequence]:
        """Yields the batch sequences in prefill by admission, then the waiting ones by arrival. place: True when
        another batch sequence may be admitted; otherwise the waiting ones are left out."""
        yield from [s for s in queues.prefilling if not s.interactive]
        if place:
            yield from queues.waiting[_place(queues.waiting, (BATCH, 0, 0.0, 0)) :]


def too_long(sequence: Sequence) -> bool:
    """Returns True when the sequence's own prompt alone takes longer than the TTFT objective."""
    return sequence.objectives.ttft_s is not None and sequence.prefill_s > sequence.objectives.ttft_s


def _place(waiting: list[Sequence], rank: Rank) -> int:
    return bisect_left(waiting, rank, key=lambda s: s.rank)
