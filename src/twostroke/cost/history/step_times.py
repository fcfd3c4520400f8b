"""Keeps the times of the steps of a run: the latest steps as tuples (StepTime), earlier ones packed into an array.

    times.recent.append((begin, commit, model, sampling, waiting, away))     a step
    times.ends.append(end)                                                   it is over
    times.pack()                                                             now `recent` and `ends` are new lists

In the middle of a step, when the kernels have emptied the caches, appending a tuple is the cheapest thing to do.
Packing its numbers there took three times as long.
"""

from __future__ import annotations

from array import array
from struct import Struct

StepTime = tuple[float, float, float, float, int, float]
"""The times of one step: (begin_s, commit_s, model_s, sampling_s, the number of waiting requests, away_s). away_s: the
seconds before the step in which the reader of the engine's events was busy, so that the step could not begin."""

BLOCK_STEPS = 128
"""The number of steps whose times are packed together. So fewer than one step in a hundred spends time on packing."""

_packed = Struct("6d").pack


class StepTimes:
    """Keeps the times of the steps of a run (consecutive steps with the same sequences). One thread writes, any thread
    may read."""

    __slots__ = ("_kept", "_tail", "ends", "recent")

    def __init__(self) -> None:
        self.recent: list[StepTime] = []
        self.ends: list[float] = []
        self._kept: array[float] = array("d")  # six numbers a step: begin, commit, model, sampling, waiting, end
        self._tail = (0, self.recent, self.ends)  # (packed steps, later steps, later ends); set at once for readers

    def pack(self) -> None:
        """Packs the times of the latest steps into one array, and begins new lists `recent` and `ends`. A step that was
        interrupted has no end; its commit time is taken as the end."""
        count, recent, ends = self._tail
        ends.extend([time[1] for time in recent[len(ends) :]])
        block = bytearray()  # grown, not joined: each piece would be one more object in cold memory
        for (begin_s, commit_s, model_s, sampling_s, waiting, _), end_s in zip(recent, ends, strict=True):
            block += _packed(begin_s, commit_s, model_s, sampling_s, waiting, end_s)
        self._kept.frombytes(block)
        self.recent, self.ends = [], []
        self._tail = (count + len(recent), self.recent, self.ends)

    def __len__(self) -> int:
        count, recent, _ = self._tail
        return count + len(recent)

    @property
    def num_ended(self) -> int:
        """The number of steps that have ended: all, or all but the last."""
        count, _, ends = self._tail
        return count + len(ends)

    def at(self, offset: int) -> tuple[float, float, float, float, int, float]:
        """Returns begin, commit, model, sampling, waiting and end of the step with index `offset`. A step without an
        end has its commit as the end."""
        count, recent, ends = self._tail
        if offset < count:
            begin_s, commit_s, model_s, sampling_s, kept_waiting, end_s = self._kept[6 * offset : 6 * offset + 6]
            return begin_s, commit_s, model_s, sampling_s, int(kept_waiting), end_s
        place = offset - count
        begin_s, commit_s, model_s, sampling_s, waiting, _ = recent[place]
        return begin_s, commit_s, model_s, sampling_s, waiting, ends[place] if place < len(ends) else commit_s
