"""Pauses ("parks") requests whose clients have stopped reading: they give their places and pages to others until the
clients read on.

A parked sequence keeps only its tokens. It is computed again from the prefix cache, or anew, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import Sequence

GiveUp = Callable[[Sequence, str], None]
"""A function that preempts a sequence between two steps. It is called with (sequence, id of the request that caused the
preemption)."""


class Parking:
    """Pauses and resumes the sequences of clients that do not read. give_up: preempts a sequence, which the next plan
    lists among the preempted ones."""

    def __init__(self, queues: Queues, give_up: GiveUp) -> None:
        self._queues, self._give_up = queues, give_up

    def park(self, request_id: str) -> None:
        """Stop computing the request. Unknown ids are ignored. Beams are ignored too, since the beam search pauses them
        itself.

        If a plan that is not committed contains the sequence, the sequence keeps its pages. Call `park` again after
        that plan to take them.
        """
        sequence = self._queues.find(request_id)
        if sequence is None or sequence.request.steered:
            return
        if not sequence.paused:
            self._queues.pause(sequence)
        if sequence.admission is not None and not sequence.under_way:
            self._give_up(sequence, request_id)

    def go_on(self, request_id: str) -> None:
        """Let a parked request wait for a place in the batch again, before the requests that came after it."""
        sequence = self._queues.find(request_id)
        if sequence is not None and sequence.paused and not sequence.request.steered:
            self._queues.resume(sequence)
