"""Decides which sequence is next and how much of it is computed: the decisions of a scheduler, as one object that it
asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from twostroke.cost.shape import Part, StepCost
from twostroke.engine.scheduler.estimates.step_time import StepTime
from twostroke.engine.scheduler.limits.gap_limiter import GapLimiter, GapRule
from twostroke.engine.scheduler.limits.limits import Limiter, StepLoad
from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.errors import Overloaded


class Policy(Protocol):
    """Deterministic: the answers depend on all arguments so far, `now` and results of steps included."""

    limiters: tuple[Limiter, ...]

    def accept(self, sequence: Sequence, cached_tokens: Callable[[], int], queues: Queues, now: float) -> None:
        """Give a new sequence its rank and its promises, before it waits. Raises Overloaded to refuse it.

        cached_tokens: returns how many tokens of the sequence's prompt are in the prefix tree at this moment.
        """

    def decodes(self, queues: Queues) -> Iterable[Sequence]:
        """Returns the decoding sequences that go on in this step, in order."""

    def prefills(self, queues: Queues, now: float) -> Iterable[Sequence]:
        """Returns the waiting sequences and the running ones that do not decode yet, best first; the list may be long.
        """

    def may_run(self, sequence: Sequence, queues: Queues) -> bool:
        """Returns True when this sequence may run in addition. If not, no later sequence is admitted in this step."""

    def planned(self, step: StepLoad, queues: Queues) -> None:
        """Note the load of a step, once it is planned and before it is computed."""

    def observe(self, parts: Iterable[Part], measured_s: float, now: float, disturbed: bool = False) -> None:
        """Learn from a step that held these parts and ended now."""

    def observe_cold(self, parts: Iterable[Part], measured_s: float) -> None:
        """Learn from a step during which memory was made ready: the next one may be as slow, later ones are not."""

    def ended(self, sequence: Sequence) -> None:
        """Note that a sequence has left."""

    def holds(self, sequence: Sequence) -> bool:
        """Returns True when the sequence waits for a promise that could not be given yet."""

    def overdue(self, queues: Queues, now: float) -> Iterable[tuple[Sequence, Overloaded]]:
        """Returns the waiting sequences that are refused after all, each with its refusal. Called after a step."""


class ArrivalPolicy:
    """Satisfies Policy for work without objectives. The order is priority, then arrival; running sequences go first.

    times, limiters: the step times, and the limiters that use them when they decide by measured steps.
    """

    def __init__(self, times: StepTime | None = None, limiters: tuple[Limiter, ...] = ()) -> None:
        self._times = times
        self.limiters = limiters

    def accept(self, sequence: Sequence, cached_tokens: Callable[[], int], queues: Queues, now: float) -> None:
        """Rank by priority, lower values first, then by arrival. A preempted sequence gets its old place again."""
        sequence.rank = (sequence.request.priority, 0, 0.0, sequence.number)

    def decodes(self, queues: Queues) -> Iterable[Sequence]:
        """Returns all sequences that decode, by admission."""
        return queues.decoding

    def prefills(self, queues: Queues, now: float) -> Iterable[Sequence]:
        """Returns the running sequences by admission, then the waiting ones by rank."""
        if self._times is not None:
            self._times.at(now)
        return [*queues.prefilling, *queues.waiting]

    def may_run(self, sequence: Sequence, queues: Queues) -> bool:
        """Returns True: the budgets alone decide."""
        return True

    def planned(self, step: StepLoad, queues: Queues) -> None:
        """Do nothing."""

    def observe(self, parts: Iterable[Part], measured_s: float, now: float, disturbed: bool = False) -> None:
        """Correct the cost model, if there is one."""
        if self._times is not None:
            self._times.observe(parts, measured_s, now, disturbed)

    def observe_cold(self, parts: Iterable[Part], measured_s: float) -> None:
        """See Policy. The correction holds until the next step that is not cold."""
        if self._times is not None:
            self._times.observe_cold(parts, measured_s)

    def ended(self, sequence: Sequence) -> None:
        """Do nothing."""

    def holds(self, sequence: Sequence) -> bool:
        """Returns False: nothing is promised."""
        return False

    def overdue(self, queues: Queues, now: float) -> Iterable[tuple[Sequence, Overloaded]]:
        """Returns nothing: no request is refused."""
        return ()


def arrival_policy(cost: StepCost, rule: GapRule, page_tokens: int, guessed: bool = False) -> ArrivalPolicy:
    """Returns the default policy: order of arrival, with prompts in chunks that keep this rule on a machine that `cost`
    predicts."""
    times = StepTime.of(cost, guessed)
    return ArrivalPolicy(times, (GapLimiter(times, max(1, page_tokens // 4), rule),))
