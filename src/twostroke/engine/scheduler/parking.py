"""Pauses ("parks") requests whose clients have stopped reading: they give their places and pages to others until the
clients read on.

A parked sequence keeps only its tokens. It is computed again from the prefix cache, or anew, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import Sequence

GiveUp = Callable[[Sequence, str], None]
"""Called with (sequence, request id): preempts the sequence, outside of a step. The id is reported as the request for
which this is done."""


class Parking:
    """Pauses and resumes the sequences of clients that do not read. give_up: preempts a sequence; the next plan reports
    it."""

    def __init__(self, queues: Queues, give_up: GiveUp) -> None:
        self._queues, self._give_up = queues, give_up

    def park(self, request_id: str) -> None:
        """Stop computing the request. Unknown ids are ignored, and so are beams, which their search pauses.

        If a plan that is not committed contains the sequence, it keeps its pages; park it again after that plan.
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
