"""An executor that fails, delays, and lets callers hang up in the middle of a step, by a seed."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from twostroke.engine.executor import Executor
from twostroke.lab.sim.clock import VirtualClock
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class Fault(enum.Enum):
    """What goes wrong in one step."""

    RAISE_BEFORE = "the step fails before anything is computed"
    RAISE_AFTER = "the step fails after everything was computed"
    FAIL_ONE = "one sequence's own work fails"
    LOSE_TOKEN = "one sequence that samples gets no token"
    DELAY = "the step takes much longer than predicted"
    ABORT = "a caller hangs up while the step runs"


class InjectedFault(RuntimeError):
    """The error that the faulty executor raises."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """share: the share of the steps that go wrong. kinds: the kinds that are drawn, with equal chances. delay_s: the
    longest delay."""

    share: float
    kinds: tuple[Fault, ...] = tuple(Fault)
    delay_s: float = 10.0


class FaultyExecutor:
    """Satisfies engine.executor.Executor. touched: the ids of requests whose own work failed; raised: the number of
    failed steps.

    abort(request_id) is called while a step is under way, between `schedule` and `commit`.
    """

    def __init__(
        self,
        inner: Executor,
        clock: VirtualClock,
        rates: FaultRates,
        dice: random.Random,
        abort: Callable[[str], None],
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._rates = rates
        self._dice = dice
        self._abort = abort
        self.touched: set[str] = set()
        self.raised = 0

    def execute(self, plan: Plan) -> StepResult:
        """The wrapped executor's result, or the result of a fault. Raises InjectedFault."""
        dice = self._dice
        if dice.random() >= self._rates.share:
            return self._inner.execute(plan)
        fault = dice.choice(self._rates.kinds)
        if fault is Fault.RAISE_BEFORE:
            raise self._failure(plan, fault)
        result = self._inner.execute(plan)
        victim = dice.choice(plan.sequences).request.request_id
        if fault is Fault.RAISE_AFTER:
            raise self._failure(plan, fault)
        if fault is Fault.FAIL_ONE:
            self.touched.add(victim)
            return replace(result, failed={victim: "asked to fail"})
        if fault is Fault.LOSE_TOKEN:
            kept = {name: token for name, token in result.sampled.items() if name != victim}
            if len(kept) < len(result.sampled):
                self.touched.add(victim)
            return replace(result, sampled=kept)
        if fault is Fault.DELAY:
            self._clock.advance(dice.uniform(0, self._rates.delay_s))
        else:
            self._abort(victim)
        return result

    def _failure(self, plan: Plan, fault: Fault) -> InjectedFault:
        self.raised += 1
        self.touched.update(sequence.request.request_id for sequence in plan.sequences)
        return InjectedFault(fault.value)
