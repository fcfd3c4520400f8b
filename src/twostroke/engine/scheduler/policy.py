"""The object that a scheduler asks for its decisions: which sequence is next, and how much of it is computed."""

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
    """The decisions of a scheduler: which sequences run, in which order, and which are refused. A policy must be
    deterministic: its answers depend only on the arguments of all calls so far, including times and results of steps.
    limiters: the policy's limits of what a step computes."""

    limiters: tuple[Limiter, ...]

    def accept(self, sequence: Sequence, cached_tokens: Callable[[], int], queues: Queues, now: float) -> None:
        """Set a new sequence's place among the waiting (`rank`) and its objectives. The scheduler calls this before it
        queues the sequence. Raises Overloaded to refuse it.

        cached_tokens: returns how many tokens of the sequence's prompt are in the prefix tree at this moment.
        """

    def decodes(self, queues: Queues) -> Iterable[Sequence]:
        """Returns the decoding sequences that go on in this step, in order."""

    def prefills(self, queues: Queues, now: float) -> Iterable[Sequence]:
        """Returns the waiting sequences and the running ones that do not decode yet, best first; the list may be long.
        """

    def may_run(self, sequence: Sequence, queues: Queues) -> bool:
        """Returns True when this waiting sequence may be admitted next to the running ones. If not, no later sequence
        is admitted in this step."""

    def planned(self, step: StepLoad, queues: Queues) -> None:
        """Note the load of a step, once it is planned and before it is computed."""

    def observe(self, parts: Iterable[Part], measured_s: float, now: float, disturbed: bool = False) -> None:
        """Learn from a step that computed these parts and ended now. disturbed: whether the executor did other work in
        the same step, whose time is not in measured_s."""

    def observe_cold(self, parts: Iterable[Part], measured_s: float) -> None:
        """Learn from a step during which memory was being made ready: the next step may be as slow, later ones are not.
        """

    def ended(self, sequence: Sequence) -> None:
        """Note that a sequence has ended."""

    def holds(self, sequence: Sequence) -> bool:
        """Returns True when the sequence waits without a promise of its TTFT, because it is not yet predicted to be in
        time."""

    def overdue(self, queues: Queues, now: float) -> Iterable[tuple[Sequence, Overloaded]]:
        """Returns the waiting sequences that are refused after all, each with its refusal. Called after a step."""


class ArrivalPolicy:
    """Satisfies Policy for work without objectives. The order is priority, then arrival; running sequences go first.

    times: predicts step times, and learns from each step; None without a cost model. limiters: limits of a step, which
    may use these predictions.
    """

    def __init__(self, times: StepTime | None = None, limiters: tuple[Limiter, ...] = ()) -> None:
        self._times = times
        self.limiters = limiters

    def accept(self, sequence: Sequence, cached_tokens: Callable[[], int], queues: Queues, now: float) -> None:
        """Set the sequence's place in the queue, which is sorted by priority, lower values first, then by arrival. A
        preempted sequence gets its old place again."""
        sequence.rank = (sequence.request.priority, 0, 0.0, sequence.number)

    def decodes(self, queues: Queues) -> Iterable[Sequence]:
        """Returns all sequences that decode, by admission."""
        return queues.decoding

    def prefills(self, queues: Queues, now: float) -> Iterable[Sequence]:
        """Returns the running sequences in prefill by admission, then the waiting ones in their order."""
        if self._times is not None:
            self._times.at(now)
        return [*queues.prefilling, *queues.waiting]

    def may_run(self, sequence: Sequence, queues: Queues) -> bool:
        """Returns True: unlike other policies, this one refuses no admission that the limits of a step allow."""
        return True

    def planned(self, step: StepLoad, queues: Queues) -> None:
        """Do nothing."""

    def observe(self, parts: Iterable[Part], measured_s: float, now: float, disturbed: bool = False) -> None:
        """Correct the predicted step times by this step's time."""
        if self._times is not None:
            self._times.observe(parts, measured_s, now, disturbed)

    def observe_cold(self, parts: Iterable[Part], measured_s: float) -> None:
        """Correct the predicted step times by a cold step, in which memory was still being made ready. The correction
        is used until the first step that is not cold."""
        if self._times is not None:
            self._times.observe_cold(parts, measured_s)

    def ended(self, sequence: Sequence) -> None:
        """Do nothing."""

    def holds(self, sequence: Sequence) -> bool:
        """Returns False: without objectives no sequence waits for a promised TTFT."""
        return False

    def overdue(self, queues: Queues, now: float) -> Iterable[tuple[Sequence, Overloaded]]:
        """Returns nothing: no request is refused."""
        return ()


def arrival_policy(cost: StepCost, rule: GapRule, page_tokens: int, guessed: bool = False) -> ArrivalPolicy:
    """Returns the default policy: order of arrival, with prompts in chunks. The chunks are so small that gaps between
    the tokens of running answers stay within `rule`, by the step times that `cost` predicts. guessed: True when this
    machine was not measured."""
    times = StepTime.of(cost, guessed)
    return ArrivalPolicy(times, (GapLimiter(times, max(1, page_tokens // 4), rule),))
