"""Chooses the streams of batch work that go on in a step. They are as many as fit into half of the step's time bound.
The other half is left for prefill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twostroke.cost.shape import Segment
from twostroke.engine.scheduler.sequence import Sequence as Running

ROOM_SHARE = 0.5


class BatchDecodes:
    """Chooses the streams of batch work (priority above 0, without objectives) in a step. When a step would be too
    long, the batch streams that went on most recently are left out first.

    At least one is in every step, and the one that was left out longest comes first. Each of k batch streams therefore
    goes on at least every k-th step.
    """

    def __init__(self, seconds: Callable[[Sequence[Segment]], float]) -> None:
        self._seconds = seconds

    def chosen(self, interactive: list[Running], batch: list[Running], bound_s: float | None) -> list[Running]:
        """Returns the streams of `batch` (batch work) that go on in this step; all streams of `interactive` do.
        bound_s: the most seconds of the step; None when nothing was promised."""
        if not batch or not interactive or bound_s is None:
            return batch
        room_s = ROOM_SHARE * bound_s
        ordered = sorted(batch, key=lambda s: s.last_step)
        segments = [decode_segment(s) for s in (*interactive, *ordered)]
        if self._seconds(segments) <= room_s:
            return batch
        fits, fails = 1, len(ordered)
        while fails - fits > 1:
            middle = (fits + fails) // 2
            if self._seconds(segments[: len(interactive) + middle]) <= room_s:
                fits = middle
            else:
                fails = middle
        return ordered[:fits]


def decode_segment(sequence: Running) -> Segment:
    """Returns the sequence's part of a decode step, from which a cost model predicts the step's time. If its prompt is
    not computed yet, it is treated as if it were."""
    return Segment.decode(len(sequence.known) - 1, sequence.request.adapter)
