"""The engine core: schedule, execute, commit. Nothing else happens in a step, in production, simulator and tests.

A pipeline has several plans in flight (`plans_in_flight.py`): the next plans are made before the first plan is
executed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from twostroke.engine.executor import Executor
from twostroke.engine.plans_in_flight import PlansInFlight
from twostroke.types.event import Event
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult

STEP_FAULT = "The engine failed while it computed this request."


class Planner(Protocol):
    """The interface of the scheduler that EngineCore uses: it makes plans, and takes in their results."""

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running."""

    def schedule(self, now: float) -> Plan | None:
        """Returns the next step's plan; None when nothing can be computed."""

    def commit(self, plan: Plan, result: StepResult, now: float) -> Sequence[Event]:
        """Take in the result of a plan, and return its events."""

    def gauges(self) -> Any:
        """Returns the present counts of requests and pages, for metrics."""


class Step(Struct, frozen=True):
    """One finished step: its plan, its result, its events, when it began, and when it was committed.

    A step of a pipeline begins when the step before it has ended, though its first stages may have begun earlier.
    """

    plan: Plan
    result: StepResult
    events: Sequence[Event]
    begin_s: float
    commit_s: float


Computed = Callable[[Plan, StepResult, float, float], None]
"""Called with (plan, result, begin_s, commit_s) before each commit. The plan's live sequences are then still as they
were planned."""


def nothing_before() -> bool:
    """Do nothing, and return False. It is the default of `before`, which is called before each step."""
    return False


def do_nothing(plan: Plan, result: StepResult, begin_s: float, commit_s: float) -> None:
    """Do nothing. It is the default of `computed`, which is called between a step's computation and its commit."""


class EngineCore:
    """Calls schedule, execute and commit in order, for the engine's shells, simulators and tests. computed: called
    before each commit.

    flight: the plans that were made and not yet executed; at most one by default. before: called before each step; its
    time does not count as the step's. It returns True when it did nothing but wait for data of requests, such as pages
    from a disk. waited: the last result of `before`.
    """

    def __init__(
        self,
        scheduler: Planner,
        executor: Executor,
        computed: Computed = do_nothing,
        flight: PlansInFlight | None = None,
        before: Callable[[], bool] = nothing_before,
    ) -> None:
        self.scheduler = scheduler
        self._executor = executor
        self._computed, self._before = computed, before
        self.waited = False
        self._flight = PlansInFlight() if flight is None else flight
        self.interrupted: Step | None = None

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running, and while a plan is in flight, even if all its requests have
        ended."""
        return len(self._flight) > 0 or self.scheduler.has_work

    def step(self, clock: Callable[[], float]) -> Step | None:
        """Run one step and return it; None when nothing can be computed.

        An exception of the executor is passed on. The requests of the step have then failed, because otherwise their
        pages would never be free; their events are in `interrupted`. In a pipeline, later plans stay in flight, because
        its first stages are already computing them.
        """
        self.waited = self._before()
        flight, begin_s = self._flight, clock()
        while flight.room and (plan := self.scheduler.schedule(begin_s)) is not None:
            flight.begin(plan, begin_s)
        oldest = flight.oldest
        if oldest is None:
            return None
        try:
            result = self._executor.execute(oldest)
        except BaseException:
            self.interrupted = self._land(all_failed(oldest), begin_s, clock())
            raise
        return self._land(result, begin_s, clock())

    def _land(self, result: StepResult, begin_s: float, commit_s: float) -> Step:
        plan = self._flight.landed()
        self._computed(plan, result, begin_s, commit_s)
        return Step(plan, result, self.scheduler.commit(plan, result, commit_s), begin_s, commit_s)


def all_failed(plan: Plan) -> StepResult:
    """Returns the result of a step that failed as a whole."""
    return StepResult({}, {sequence.request.request_id: STEP_FAULT for sequence in plan.computed})
