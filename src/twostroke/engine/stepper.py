"""One step of an engine with its faults caught: it runs a step of the core and makes the deltas for readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twostroke.engine.faults.alarm import Alarm
from twostroke.engine.session import Session
from twostroke.engine.step_loop import MAX_FAULTS_IN_A_ROW, StepLoop
from twostroke.types.errors import EngineStopped
from twostroke.types.output import Delta, Prompt


def no_doubt() -> None:
    """Default for require_sound, which checks before a step whether the engine's data is intact: passes always."""


class Stepper:
    """Owns the loop of steps, and the session that turns the events of steps into text; used from one thread at a time.

    The session's observer is called for each step. require_sound: called before each step; raises EngineStopped when no
    answer can be trusted any more. alarm: set off (`ring`) by whatever finds out that require_sound will raise from now
    on.
    """

    def __init__(
        self,
        loop: StepLoop,
        session: Session,
        require_sound: Callable[[], None] = no_doubt,
        alarm: Alarm | None = None,
    ) -> None:
        self.loop, self.session = loop, session
        loop.listen(session.ledger, session.ledger.step)
        self.clock, self.report_fault = loop.clock, loop.report_fault
        self._require_sound = require_sound
        self.alarm = alarm or Alarm()
        self._late: list[Delta] = []  # pieces of an interrupted step

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running, or a plan is in flight. Also True after the alarm was rung, so
        that `step` is called and raises the reason."""
        return self.loop.has_work or self.alarm.rung

    def gauges(self) -> Any:
        """Returns the scheduler's present counts of requests and pages (Gauges)."""
        return self.loop.book.gauges()

    def submit(self, prompt: Prompt, arrival_s: float | None = None) -> str:
        """Queue a prompt that came now, or at arrival_s, and return its request id. Raises InvalidRequest."""
        return self.session.submit(prompt, self.clock() if arrival_s is None else arrival_s)

    def abort(self, request_id: str) -> list[Delta]:
        """End a request now, whatever its state. Returns the last pieces of its answers."""
        return self.session.abort(request_id, self.clock())

    def step(self) -> list[Delta] | None:
        """Run one step and return its pieces; None when no plan can be made.

        A fault of the executor ends the requests of that plan, with a general message. Raises EngineStopped when the
        engine is not sound. Raises it also when three steps in a row were faulty and the probe fails (then the machine
        is broken, not a request).
        """
        self._require_sound()
        if self._late:
            late, self._late = self._late, []
            return late
        try:
            step = self.loop.step()
        except BaseException:  # for example Ctrl-C
            if (interrupted := self.loop.take_interrupted()) is not None:
                self._late += self.session.consume(interrupted.events, interrupted.commit_s)
            raise
        if step is None:
            return [] if self.loop.waited else None
        deltas = self.session.consume(step.events, step.commit_s)
        ended_s = self.clock()
        self.session.ledger.close_step(ended_s)
        self.session.observer.on_step(step.plan, step.result, ended_s - step.begin_s)
        why = f"{MAX_FAULTS_IN_A_ROW} steps in a row failed."
        self.loop.check_machine(EngineStopped("The engine has stopped.", why=why, fix="Restart it."))
        return deltas
