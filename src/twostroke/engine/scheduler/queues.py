"""The waiting, running and paused sequences of a scheduler."""

from __future__ import annotations

from bisect import insort

from twostroke.engine.scheduler.sequence import Rank, Sequence
from twostroke.types.plan import Role


class Queues:
    """All live sequences, each in one of three lists. waiting: in the order in which they are to be admitted (`rank`).
    running: in the order of their admission, oldest first. paused: sequences that compute nothing at present; those
    that were admitted hold pages."""

    def __init__(self) -> None:
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.paused: list[Sequence] = []
        self._by_id: dict[str, Sequence] = {}
        self._admissions = 0
        self._with_adapters = 0

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, request_id: str) -> Sequence | None:
        """Returns the live sequence of this id; None when there is none."""
        return self._by_id.get(request_id)

    def enqueue(self, sequence: Sequence) -> None:
        """Add a new sequence to the waiting ones."""
        self._know(sequence)
        insort(self.waiting, sequence, key=lambda s: s.rank)

    def admit(self, sequence: Sequence) -> None:
        """Move a sequence from waiting to running."""
        self.waiting.remove(sequence)
        self._admissions += 1
        sequence.admission = self._admissions
        self.running.append(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """Move a preempted sequence from running to its old place among the waiting. A paused sequence stays paused,
        and joins the waiting ones when it is resumed."""
        sequence.admission = None
        if sequence.paused:
            return
        self.running.remove(sequence)
        insort(self.waiting, sequence, key=lambda s: s.rank)

    def pause(self, sequence: Sequence) -> None:
        """Move a sequence from running, or from waiting, to paused."""
        (self.waiting if sequence.admission is None else self.running).remove(sequence)
        sequence.paused = True
        self.paused.append(sequence)

    def resume(self, sequence: Sequence) -> None:
        """Move a paused sequence back to the running ones if it is admitted, else to its place among the waiting."""
        self.paused.remove(sequence)
        sequence.paused = False
        if sequence.admission is None:
            insort(self.waiting, sequence, key=lambda s: s.rank)
        else:
            insort(self.running, sequence, key=lambda s: s.admission or 0)

    def add_paused(self, sequence: Sequence) -> None:
        """Add a new sequence that is paused and not admitted."""
        self._know(sequence)
        sequence.paused = True
        self.paused.append(sequence)

    def admit_paused(self, sequence: Sequence) -> None:
        """Note that a paused sequence holds pages now: it counts as admitted. A sequence that is admitted already keeps
        its place in the order of admission."""
        if sequence.admission is None:
            self._admissions += 1
            sequence.admission = self._admissions

    def rank_again(self, sequence: Sequence, rank: Rank) -> None:
        """Give a waiting sequence another rank, and so another place in the order."""
        self.waiting.remove(sequence)
        sequence.rank = rank
        insort(self.waiting, sequence, key=lambda s: s.rank)

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence that has ended."""
        del self._by_id[sequence.request.request_id]
        self._with_adapters -= sequence.request.adapter >= 0
        if sequence.paused:
            self.paused.remove(sequence)
        else:
            (self.waiting if sequence.admission is None else self.running).remove(sequence)

    @property
    def decoding(self) -> list[Sequence]:
        """The running sequences that decode, by admission."""
        return [s for s in self.running if s.role is Role.DECODE]

    @property
    def prefilling(self) -> list[Sequence]:
        """The running sequences in prefill, by admission."""
        return [s for s in self.running if s.role is Role.PREFILL]

    def adapters_of(self, sequences: list[Sequence]) -> frozenset[int]:
        """Returns the numbers of the sequences' adapters. It is quick when no live sequence has an adapter."""
        return frozenset(s.request.adapter for s in sequences) - {-1} if self._with_adapters else frozenset()

    def _know(self, sequence: Sequence) -> None:
        self._by_id[sequence.request.request_id] = sequence
        self._with_adapters += sequence.request.adapter >= 0

    @property
    def idle_holder(self) -> Sequence | None:
        """The paused sequence to preempt when a sequence waits and no step can be planned, because paused sequences
        hold the pages; None when there is none."""
        idle = self.last_resort(set()) if self.waiting else None
        return idle if idle is not None and idle.paused else None

    def last_resort(self, kept: set[str]) -> Sequence | None:
        """Returns the sequence to preempt when pages are short: the sequence with the worst priority. Among equal
        priorities it is the sequence that was admitted last. Sequences in `kept` or in a plan are left out. Returns
        None when there is none."""
        candidates = [s for s in self.running if not s.under_way and s.request.request_id not in kept]
        if self.paused:
            candidates += [s for s in self.paused if s.admission is not None]
        return max(candidates, key=lambda s: (s.request.priority, s.admission or 0), default=None)
