"""Requests whose readers have stopped: they give their places and pages to others until their readers go on.

A parked sequence keeps only its tokens. It is computed again from the prefix cache, or anew, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import Sequence

GiveUp = Callable[[Sequence, str], None]
"""Called with (sequence, by): preempts the sequence, outside of a step."""


class Parking:
    """Parks sequences. give_up: preempts a sequence; the next plan reports it."""

    def __init__(self, queues: Queues, give_up: GiveUp) -> None:
        self._queues, self._give_up = queues, give_up

    def park(self, request_id: str) -> None:
        """Stop computing the request. Unknown ids and beams, whose next tokens come from outside, change nothing.

        A sequence that a plan in work holds keeps its pages; it must be parked again after that plan.
        """
        sequence = self._queues.find(request_id)
        if sequence is None or sequence.request.steered:
            return
        if not sequence.paused:
            self._queues.pause(sequence)
        if sequence.admission is not None and not sequence.under_way:
            self._give_up(sequence, request_id)

    def go_on(self, request_id: str) -> None:
        """Let a parked request wait for its place again, before the requests that came after it."""
        sequence = self._queues.find(request_id)
        if sequence is not None and sequence.paused and not sequence.request.steered:
            self._queues.resume(sequence)
