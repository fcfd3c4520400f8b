"""Who is next and how much: the decisions of a scheduler, as one object that it asks.

Knows: sequences, queues, limiters.
Must not know: pages, executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Positions
from typing import Protocol

from twostroke.cost.shape import StepCost
from twostroke.scheduler.gap_limiter import GapLimiter, GapRule
from twostroke.scheduler.limits import Limiter, StepLoad
from twostroke.scheduler.queues import Queues
from twostroke.scheduler.sequence import Sequence
from twostroke.scheduler.step_time import StepTime
from twostroke.types.errors import Overloaded
from twostroke.types.plan import Plan


class Policy(Protocol):
    """Deterministic: what it answers depends on what it was told, `now` and results of steps included."""

    limiters: tuple[Limiter, ...]
    streams_pass: bool
    """True where every stream is in every step and nobody is refused, so that steps of streams can be looked ahead."""

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

    def observe(self, plan: Plan, measured_s: float, now: float, stream_starts: Positions[int]) -> None:
        """A step was computed and ended now. stream_starts: of streams that were in it and not in the plan."""

    def ended(self, sequence: Sequence) -> None:
        """A sequence has left."""

    def overdue(self, queues: Queues, now: float) -> Iterable[tuple[Sequence, Overloaded]]:
        """After a step: waiting sequences that are refused after all, each with what to tell."""


class ArrivalPolicy:
    """Satisfies Policy, without objectives: by priority, then by arrival; what runs goes first.

    times, limiters: where limiters decide by measured steps, these are what they ask.
    """

    streams_pass = True

    def __init__(self, times: StepTime | None = None, limiters: tuple[Limiter, ...] = ()) -> None:
        self._times = times
        self.limiters = limiters

    def welcome(self, newcomer: Sequence, cached_tokens: Callable[[], int], queues: Queues, now: float) -> None:
        """Lower priority values first, then arrival; a preempted one has its old place again."""
        newcomer.rank = (newcomer.request.priority, 0, 0.0, newcomer.number)

    def decodes(self, queues: Queues) -> Iterable[Sequence]:
        """All, by admission."""
        return queues.decoding

    def prefills(self, queues: Queues, now: float) -> Iterable[Sequence]:
        """Running ones by admission, then the waiting ones by rank."""
        if self._times is not None:
            self._times.at(now)
        return [*queues.prefilling, *queues.waiting]

    def may_enter(self, newcomer: Sequence, queues: Queues) -> bool:
        """The budgets alone decide."""
        return True

    def planned(self, step: StepLoad, queues: Queues) -> None:
        """Nothing."""

    def observe(self, plan: Plan, measured_s: float, now: float, stream_starts: Positions[int]) -> None:
        """Correct the cost model, where there is one."""
        if self._times is not None:
            self._times.observe(plan, measured_s, now, stream_starts)

    def ended(self, sequence: Sequence) -> None:
        """Nothing."""

    def overdue(self, queues: Queues, now: float) -> Iterable[tuple[Sequence, Overloaded]]:
        """Nobody is refused."""
        return ()


def arrival_policy(cost: StepCost, rule: GapRule, page_tokens: int, guessed: bool = False) -> ArrivalPolicy:
    """The default: order of arrival, with prompts in chunks that keep this rule on a machine that `cost` predicts."""
    times = StepTime.of(cost, guessed)
    return ArrivalPolicy(times, (GapLimiter(times, max(1, page_tokens // 4), rule),))
