"""One turn of the engine with its faults caught: schedule, execute, commit, and pieces for readers.

Knows: the three verbs, the session, an injected clock.
Must not know: threads, event loops, why an executor fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twostroke.engine.session import Session
from twostroke.types.errors import EngineStopped
from twostroke.types.event import Event
from twostroke.types.output import Delta, Prompt
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult

STEP_FAULT = "The engine failed while it computed this request."
MAX_FAULTS_IN_A_ROW = 3

ReportFault = Callable[[BaseException], None]


class Planner(Protocol):
    """The scheduler's side of a step."""

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running."""

    def schedule(self, now: float) -> Plan | None:
        """What to compute next; None where there is nothing."""

    def commit(self, plan: Plan, result: StepResult, now: float) -> Sequence[Event]:
        """Take in what a plan gave."""

    def gauges(self) -> Any:
        """Counts of this moment."""


class PlanRunner(Protocol):
    """What runs plans (engine.executor.Executor)."""

    def execute(self, plan: Plan) -> StepResult:
        """Compute a plan."""


def no_probe() -> None:
    """For executors whose health nobody can ask about: three faults in a row are believed."""
    raise EngineStopped("Nobody knows better.")


def no_doubt() -> None:
    """For engines that nobody doubts."""


def no_report(_error: BaseException) -> None:
    """For callers that do not log faults."""


class Stepper:
    """Owns scheduler and executor; used from one thread at a time.

    The session's observer hears of each step; `report_fault` gets every fault in full. probe: raises where the
    machine itself is broken; it is asked after three faulty steps in a row. require_sound: asked before each step;
    raises EngineStopped where no answer can be trusted any more.
    """

    def __init__(
        self,
        scheduler: Planner,
        executor: PlanRunner,
        session: Session,
        clock: Callable[[], float],
        report_fault: ReportFault = no_report,
        probe: Callable[[], None] = no_probe,
        require_sound: Callable[[], None] = no_doubt,
    ) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self.session = session
        self.clock = clock
        self.report_fault = report_fault
        self._probe = probe
        self._require_sound = require_sound
        self._faults_in_a_row = 0
        self._late: list[Delta] = []  # pieces of a step that was interrupted

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running."""
        return self._scheduler.has_work

    def gauges(self) -> Any:
        """The scheduler's counts."""
        return self._scheduler.gauges()

    def submit(self, prompt: Prompt, arrival_s: float | None = None) -> str:
        """Queue a prompt that came now, or at arrival_s; its request id. Raises InvalidRequest."""
        return self.session.submit(prompt, self.clock() if arrival_s is None else arrival_s)

    def abort(self, request_id: str) -> list[Delta]:
        """End a request now."""
        return self.session.abort(request_id, self.clock())

    def step(self) -> list[Delta] | None:
        """One step; None where no plan can be made.

        A fault of the executor ends the requests of that plan, with a general message. Raises EngineStopped where
        three steps in a row were faulty and the probe is too (then the machine is broken, not a request), and where the
        engine is not sound.
        """
        self._require_sound()
        if self._late:
            late, self._late = self._late, []
            return late
        started_s = self.clock()
        plan = self._scheduler.schedule(started_s)
        if plan is None:
            return None
        result = self._execute(plan, started_s)
        deltas = self._commit(plan, result, started_s)
        ended_s = self.clock()
        self.session.ledger.close_step(ended_s)
        self.session.observer.on_step(plan, result, ended_s - started_s)
        if self._faults_in_a_row >= MAX_FAULTS_IN_A_ROW:
            self._ask_probe()
        return deltas

    def _ask_probe(self) -> None:
        try:
            self._probe()
        except Exception as error:
            raise EngineStopped(
                "The engine has stopped.", why=f"{MAX_FAULTS_IN_A_ROW} steps in a row failed.", fix="Restart it."
            ) from error
        self._faults_in_a_row = 0

    def _commit(self, plan: Plan, result: StepResult, started_s: float) -> list[Delta]:
        now = self.clock()
        self.session.ledger.step(plan, result, started_s, now)
        return self.session.consume(self._scheduler.commit(plan, result, now), now)

    def _execute(self, plan: Plan, started_s: float) -> StepResult:
        try:
            result = self._executor.execute(plan)
        except Exception as error:
            self._faults_in_a_row += 1
            self.report_fault(error)
            return _all_failed(plan)
        except BaseException:
            # Ctrl-C and the like: the plan must not stay open, or its pages would never be free.
            self._late += self._commit(plan, _all_failed(plan), started_s)
            raise
        self._faults_in_a_row = 0
        return result


def _all_failed(plan: Plan) -> StepResult:
    return StepResult({}, {sequence.request.request_id: STEP_FAULT for sequence in plan.sequences})
