"""Divides the places of a batch among API calls. So a new request need not wait for a call with many completions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import Sequence

LARGE_SHARE = 8
FEWEST_LARGE = 4
GiveUp = Callable[[Sequence, str], None]
"""Called with (sequence, request id): preempts the sequence for the request of this id."""


class Places:
    """A call is large when it has at least an eighth of all places, and at least FEWEST_LARGE.

    A guest is a waiting sequence of a call that has no place. When a guest waits and no place is free, the largest call
    gives up the place that it got last, if it stays large without this place. The sequence that loses its place mostly
    finds its pages in the prefix cache again. While a guest waits, a large call takes no further place. Completions
    that enter fill steps as prompts do, so a guest that came after hundreds of them would wait although places are
    free. A call with a better priority than the guest's gives up nothing.
    """

    def __init__(self, max_sequences: int) -> None:
        self._max_sequences = max_sequences
        self._large = max(FEWEST_LARGE, max_sequences // LARGE_SHARE)

    def make(self, queues: Queues, give_up: GiveUp) -> frozenset[str]:
        """Free a place for a guest when that is needed. Returns the calls that take no further place in this step."""
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
        """Returns the sequence of a call that was admitted last. Sequences in a plan in work and beams are left out.
        Returns None when there is none."""
        own = (each for each in running if each.request.group_id == group)
        free = [each for each in own if not (each.under_way or each.request.steered)]
        return free[-1] if free else None
