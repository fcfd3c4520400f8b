"""The waiting and the running sequences.

Knows: sequences and their order.
Must not know: pages, budgets.
"""

from __future__ import annotations

from bisect import insort

from twostroke.scheduler.sequence import Rank, Sequence
from twostroke.types.plan import Role


class Queues:
    """waiting: by rank. running: by admission, oldest first. A sequence is in one of them, never in both."""

    def __init__(self) -> None:
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self._by_id: dict[str, Sequence] = {}
        self._admissions = 0

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, request_id: str) -> Sequence | None:
        """The live sequence of this id."""
        return self._by_id.get(request_id)

    def enqueue(self, sequence: Sequence) -> None:
        """A new sequence waits."""
        self._by_id[sequence.request.request_id] = sequence
        insort(self.waiting, sequence, key=lambda s: s.rank)

    def admit(self, sequence: Sequence) -> None:
        """From waiting to running."""
        self.waiting.remove(sequence)
        self._admissions += 1
        sequence.admission = self._admissions
        self.running.append(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """From running to its old place among the waiting."""
        self.running.remove(sequence)
        sequence.admission = None
        insort(self.waiting, sequence, key=lambda s: s.rank)

    def rank_again(self, sequence: Sequence, rank: Rank) -> None:
        """Give a waiting sequence another place."""
        self.waiting.remove(sequence)
        sequence.rank = rank
        insort(self.waiting, sequence, key=lambda s: s.rank)

    def remove(self, sequence: Sequence) -> None:
        """It has ended."""
        del self._by_id[sequence.request.request_id]
        (self.waiting if sequence.admission is None else self.running).remove(sequence)

    @property
    def decoding(self) -> list[Sequence]:
        """Running sequences that decode, by admission."""
        return [s for s in self.running if s.role is Role.DECODE]

    @property
    def prefilling(self) -> list[Sequence]:
        """The other running sequences, by admission."""
        return [s for s in self.running if s.role is Role.PREFILL]

    def last_resort(self, kept: set[str]) -> Sequence | None:
        """The sequence to preempt: the worst priority, then the last admitted, of those not in `kept`."""
        candidates = [s for s in self.running if s.request.request_id not in kept]
        return max(candidates, key=lambda s: (s.request.priority, s.admission or 0), default=None)
