"""Divides the places of a batch among API requests, so that a new one need not wait for one with many completions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import Sequence

LARGE_SHARE = 8
FEWEST_LARGE = 4
GiveUp = Callable[[Sequence, str], None]
"""A function that preempts a sequence. It is called with (sequence, id of the request that gets its place)."""


class Places:
    """An API request may have many completions, each with a place in the batch. A request is called large when it has
    at least an eighth of all places, and at least FEWEST_LARGE. A guest is a waiting sequence whose API request has no
    place.

    When a guest waits and no place is free, the largest API request gives up the place that it got last, unless the
    loss would make it smaller than large. The sequence that loses its place mostly finds its pages in the prefix cache
    again. While a guest waits, a large API request takes no further place. Otherwise its completions, which enter as
    fast as steps have room for prompts, could keep the guest waiting although places are free. An API request with a
    better priority than the guest's gives up nothing.
    """

    def __init__(self, max_sequences: int) -> None:
        self._max_sequences = max_sequences
        self._large = max(FEWEST_LARGE, max_sequences // LARGE_SHARE)

    def make(self, queues: Queues, give_up: GiveUp) -> frozenset[str]:
        """Preempt a sequence of the largest API request when the batch is full and a sequence waits whose API request
        runs no other. Returns the ids (group_id) of the API requests of which no further sequence is admitted in this
        step."""
        running = queues.running
        if not queues.waiting or len(running) < self._large:
            return frozenset()
        counts = Counter([each.request.group_id for each in running])
        group, most = max(counts.items(), key=lambda item: item[1])
        if most < self._large:
            return frozenset()
        guest = next((each for each in queues.waiting if each.request.group_id not in counts), None)
        if guest is None:
            return frozenset()
        if len(running) >= self._max_sequences and most > self._large:
            last = self._last(running, group)
            if last is not None and guest.request.priority <= last.request.priority:
                give_up(last, guest.request.request_id)
                return frozenset(counts)  # the free place is for the guest
        held = {name for name, count in counts.items() if count >= self._large}
        urgent = {each.request.group_id for each in running if each.request.priority < guest.request.priority}
        return frozenset(held - urgent)

    def _last(self, running: list[Sequence], group: str) -> Sequence | None:
        """Returns the running sequence of this API request that was admitted last; None when there is none. Beams, and
        sequences in plans that are not committed, are left out."""
        own = (each for each in running if each.request.group_id == group)
        free = [each for each in own if not (each.under_way or each.request.steered)]
        return free[-1] if free else None
