"""One turn of the engine with its faults caught: a step of the core, and pieces for readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twostroke.engine.alarm import Alarm
from twostroke.engine.core import EngineCore, Planner, nothing_before
from twostroke.engine.executor import Executor
from twostroke.engine.forgive import ForgivingExecutor
from twostroke.engine.plans_in_flight import PlansInFlight
from twostroke.engine.session import Session
from twostroke.types.errors import EngineStopped
from twostroke.types.output import Delta, Prompt
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult

MAX_FAULTS_IN_A_ROW = 3

ReportFault = Callable[[BaseException], None]


def no_probe() -> None:
    """Default health check: raises, so three faulty steps in a row stop the engine."""
    raise EngineStopped("The executor cannot be asked for its health.")


def no_doubt() -> None:
    """Default soundness check: always passes."""


def no_report(_error: BaseException) -> None:
    """Default fault report: does nothing."""


class Stepper:
    """Owns scheduler and executor; used from one thread at a time.

    The session's observer is called for each step; `report_fault` gets every fault in full. probe: raises where the
    machine itself is broken; it is asked after three faulty steps in a row. require_sound: asked before each step;
    raises EngineStopped where no answer can be trusted any more. alarm: rung when require_sound would raise from now
    on. flight: the plans in flight, for an executor with several stages that computes some at a time. before: see
    EngineCore.
    """

    def __init__(
        self,
        scheduler: Planner,
        executor: Executor,
        session: Session,
        clock: Callable[[], float],
        report_fault: ReportFault = no_report,
        probe: Callable[[], None] = no_probe,
        require_sound: Callable[[], None] = no_doubt,
        alarm: Alarm | None = None,
        flight: PlansInFlight | None = None,
        before: Callable[[], bool] = nothing_before,
    ) -> None:
        self._scheduler = scheduler
        self._forgiving = ForgivingExecutor(executor, report_fault)
        self.flight = PlansInFlight() if flight is None else flight
        self.flight.listener = session.ledger.begun
        self._core = EngineCore(scheduler, self._forgiving, self._computed, self.flight, before)
        self.session = session
        self.clock = clock
        self.report_fault = report_fault
        self.probe = probe
        self._require_sound = require_sound
        self.alarm = alarm or Alarm()
        self._late: list[Delta] = []  # pieces of a step that was interrupted

    def _computed(self, plan: Plan, result: StepResult, begin_s: float, commit_s: float) -> None:
        self.session.ledger.step(plan, result, begin_s, commit_s)

    @property
    def executor(self) -> Executor:
        """The executor that runs the plans."""
        return self._forgiving.inner

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running, or a plan is in flight, and after the alarm was rung; `step` then
        raises the reason.
        """
        return self._core.has_work or self.alarm.rung

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
        try:
            step = self._core.step(self.clock)
        except BaseException:  # Ctrl-C and the like
            interrupted, self._core.interrupted = self._core.interrupted, None
            if interrupted is not None:
                self._late += self.session.consume(interrupted.events, interrupted.commit_s)
            raise
        if step is None:
            return [] if self._core.waited else None
        deltas = self.session.consume(step.events, step.commit_s)
        ended_s = self.clock()
        self.session.ledger.close_step(ended_s)
        self.session.observer.on_step(step.plan, step.result, ended_s - step.begin_s)
        if self._forgiving.faults_in_a_row >= MAX_FAULTS_IN_A_ROW:
            self._ask_probe()
        return deltas

    def _ask_probe(self) -> None:
        try:
            self.probe()
        except Exception as error:
            raise EngineStopped(
                "The engine has stopped.", why=f"{MAX_FAULTS_IN_A_ROW} steps in a row failed.", fix="Restart it."
            ) from error
        self._forgiving.faults_in_a_row = 0
