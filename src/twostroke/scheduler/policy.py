"""Who is next and how much: the decisions of a scheduler, as one object that it asks.

Knows: sequences, queues, limiters.
Must not know: pages, executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from twostroke.scheduler.limits import Limiter, StepLoad
from twostroke.scheduler.queues import Queues
from twostroke.scheduler.sequence import Sequence
from twostroke.types.plan import Plan


class Policy(Protocol):
    """Deterministic: what it answers depends on what it was told, `now` and results of steps included."""

    limiters: tuple[Limiter, ...]

    def welcome(self, newcomer: Sequence, cached_tokens: Callable[[], int], queues: Queues, now: float) -> None:
        """Give a new sequence its rank and its promises, before it waits. Raises Overloaded to refuse it.

        cached_tokens(): of its prompt, those found in the prefix tree at this moment.
        """

    def decodes(self, queues: Queues) -> Iterable[Sequence]:
        """Running sequences with one position to compute that go on in this step, in order."""

    def prefills(self, queues: Queues, now: float) -> Iterable[Sequence]:
        """Running and waiting sequences with more to compute, best first. It may be long: only the first are taken."""

    def may_enter(self, newcomer: Sequence, queues: Queues) -> bool:
        """May one more run? Where not, nobody behind it enters in this step."""

    def planned(self, step: StepLoad, queues: Queues) -> None:
        """What a step holds, once it is planned and before it is computed."""

    def observe(self, plan: Plan, measured_s: float) -> None:
        """A step was computed."""

    def ended(self, sequence: Sequence) -> None:
        """A sequence has left."""


class ArrivalPolicy:
    """Satisfies Policy, without objectives: by priority, then by arrival; what runs goes first."""

    limiters: tuple[Limiter, ...] = ()

    def welcome(self, newcomer: Sequence, cached_tokens: Callable[[], int], queues: Queues, now: float) -> None:
        """Lower priority values first, then arrival; a preempted one has its old place again."""
        newcomer.rank = (newcomer.request.priority, 0, 0.0, newcomer.number)

    def decodes(self, queues: Queues) -> Iterable[Sequence]:
        """All, by admission."""
        return queues.decoding

    def prefills(self, queues: Queues, now: float) -> Iterable[Sequence]:
        """Running ones by admission, then the waiting ones by rank."""
        return [*queues.prefilling, *queues.waiting]

    def may_enter(self, newcomer: Sequence, queues: Queues) -> bool:
        """The budgets alone decide."""
        return True

    def planned(self, step: StepLoad, queues: Queues) -> None:
        """Nothing."""

    def observe(self, plan: Plan, measured_s: float) -> None:
        """Nothing."""

    def ended(self, sequence: Sequence) -> None:
        """Nothing."""
