"""The loop of steps that an engine and a replica share. It runs plans, survives faults of single steps, and checks the
machine after several faults in a row."""

from __future__ import annotations

from collections.abc import Callable

from twostroke.engine.book import PlanningBook
from twostroke.engine.core import Computed, EngineCore, Step, do_nothing, nothing_before
from twostroke.engine.executor import Executor
from twostroke.engine.faults.forgive import ForgivingExecutor
from twostroke.engine.plans_in_flight import FlightListener, PlansInFlight
from twostroke.types.errors import EngineStopped
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult

MAX_FAULTS_IN_A_ROW = 3

ReportFault = Callable[[BaseException], None]


def no_probe() -> None:
    """Default for `probe`, the health check of the machine: raises, so three faulty steps in a row stop the engine."""
    raise EngineStopped("The executor cannot be asked for its health.")


def no_report(_error: BaseException) -> None:
    """Default fault report: does nothing."""


class StepLoop:
    """Runs steps. It owns the executor and the book, which holds the requests and plans steps (a scheduler in an
    engine). One thread at a time uses it.

    report_fault: gets every fault in full. probe: raises when the machine itself is broken; it is called after three
    faulty steps in a row. flight: the plans in flight, for an executor with several stages that computes several at a
    time. before: see EngineCore.
    """

    def __init__(
        self,
        book: PlanningBook,
        executor: Executor,
        clock: Callable[[], float],
        report_fault: ReportFault = no_report,
        probe: Callable[[], None] = no_probe,
        flight: PlansInFlight | None = None,
        before: Callable[[], bool] = nothing_before,
    ) -> None:
        self.book, self.clock, self.report_fault, self.probe = book, clock, report_fault, probe
        self.forgiving = ForgivingExecutor(executor, report_fault)
        self._flight = PlansInFlight() if flight is None else flight
        self._core = EngineCore(book, self.forgiving, self._tell_computed, self._flight, before)
        self._computed: Computed = do_nothing

    def listen(self, listener: FlightListener, computed: Computed) -> None:
        """Sets two listeners. listener: gets each plan that begins while others are in flight. computed: called with
        each plan and its result before the scheduler commits it."""
        self._flight.tell(listener)
        self._computed = computed

    def _tell_computed(self, plan: Plan, result: StepResult, begin_s: float, commit_s: float) -> None:
        self._computed(plan, result, begin_s, commit_s)

    @property
    def executor(self) -> Executor:
        """The executor that runs the plans, without the wrapper that survives faults."""
        return self.forgiving.inner

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running, or a plan is in flight."""
        return self._core.has_work

    @property
    def waited(self) -> bool:
        """True when the last step waited for data of requests, such as pages from a disk."""
        return self._core.waited

    def step(self) -> Step | None:
        """Run one step and return it; None when no plan can be made. See EngineCore."""
        return self._core.step(self.clock)

    def take_interrupted(self) -> Step | None:
        """Returns, once, the step that was ended by Ctrl-C or the like; None when there is none."""
        interrupted, self._core.interrupted = self._core.interrupted, None
        return interrupted

    def check_machine(self, stopped: EngineStopped) -> None:
        """Raises `stopped` when three steps in a row were faulty and the probe fails too: the machine is broken then.
        """
        if self.forgiving.faults_in_a_row < MAX_FAULTS_IN_A_ROW:
            return
        try:
            self.probe()
        except Exception as error:
            raise stopped from error
        self.forgiving.faults_in_a_row = 0
