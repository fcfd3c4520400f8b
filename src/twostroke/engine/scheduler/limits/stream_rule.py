"""How many sequences may stream at once: no more than can get each token in the promised time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twostroke.cost.shape import Segment
from twostroke.engine.scheduler.limits.batch_decodes import decode_segment
from twostroke.engine.scheduler.sequence import Sequence as Running

STREAMS_SHARE = 0.8
"""The share of the ITL objective that decoding all streams may take. The rest is for prompts: without it no request
could be admitted."""
BATCH_SLOTS_SHARE = 0.75
"""The share of the running sequences that may be batch work, so that there is a place for an interactive request."""


class StreamRule:
    """Admits one more stream when decoding all streams keeps the ITL objective. The first stream is always admitted."""

    def __init__(self, seconds: Callable[[Sequence[Segment]], float], max_sequences: int) -> None:
        self._seconds = seconds
        self._max_batch = max(1, int(BATCH_SLOTS_SHARE * max_sequences))

    def has_batch_place(self, running: Sequence[Running]) -> bool:
        """Returns True when one more sequence of batch work may run."""
        return sum(not s.interactive for s in running) < self._max_batch

    def has_room(self, sequence: Running, running: Sequence[Running]) -> bool:
        """Returns True when the sequence may be admitted next to the running ones: decoding then keeps the ITL
        objective, or for batch work, a place is left."""
        if not sequence.interactive:
            return self.has_batch_place(running)
        promises = [s.objectives.itl_s for s in (*running, sequence) if s.interactive and s.objectives.itl_s]
        streams = [s for s in running if s.interactive]
        if not promises or not streams:
            return True
        segments = [decode_segment(s) for s in (*streams, sequence)]
        return self._seconds(segments) <= STREAMS_SHARE * min(promises)
