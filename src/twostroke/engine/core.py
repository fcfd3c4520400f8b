"""The engine core: schedule, execute, commit. Nothing else happens in a step.

Knows: the scheduler, the Executor protocol.
Must not know: clocks (an argument), text, threads, which executor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twostroke.engine.executor import Executor
from twostroke.scheduler.scheduler import Scheduler
from twostroke.types.event import Event
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


@dataclass(frozen=True, slots=True)
class Step:
    """One finished step: what was planned, what came of it, what to tell."""

    plan: Plan
    result: StepResult
    events: tuple[Event, ...]


class EngineCore:
    """The three verbs in order, for drivers without text: simulators, fault tests, the exactness tests."""

    def __init__(self, scheduler: Scheduler, executor: Executor) -> None:
        self.scheduler = scheduler
        self._executor = executor

    def step(self, clock: Callable[[], float]) -> Step | None:
        """One step, or None where nothing can be computed. What the executor raises goes through."""
        plan = self.scheduler.schedule(clock())
        if plan is None:
            return None
        result = self._executor.execute(plan)
        return Step(plan, result, tuple(self.scheduler.commit(plan, result, clock())))
