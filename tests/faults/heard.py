"""A scheduler that counts every event, whichever call gave it.

It is between the production scheduler and the stepper and session that drive it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from twostroke.engine.beams.book import BeamBook
from twostroke.engine.scheduler.gauges import Gauges
from twostroke.types.event import Event, FinishedEvent
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import StepResult


class HeardScheduler:
    """The three verbs, and the ways to change a request. No event comes after a request's terminal one."""

    def __init__(self, scheduler: BeamBook) -> None:
        self._scheduler = scheduler
        self._live: set[str] = set()
        self.added: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    @property
    def has_work(self) -> bool:
        """Whether a request is waiting or running."""
        return self._scheduler.has_work

    def add(self, request: Request) -> None:
        """Queues a request."""
        self._scheduler.add(request)
        self._live.add(request.request_id)
        self.added[request.request_id] += 1

    def abort(self, request_id: str, now: float) -> list[Event]:
        """Ends a request."""
        return self._heard(self._scheduler.abort(request_id, now))

    def finish(
        self, request_id: str, reason: FinishReason, now: float, num_output_tokens: int | None = None
    ) -> list[Event]:
        """Ends it with a reason that the scheduler cannot see."""
        return self._heard(self._scheduler.finish(request_id, reason, now, num_output_tokens))

    def schedule(self, now: float) -> Plan | None:
        """The plan of the next step."""
        return self._scheduler.schedule(now)

    def commit(self, plan: Plan, result: StepResult, now: float) -> list[Event]:
        """Takes the results of a plan."""
        return self._heard(self._scheduler.commit(plan, result, now))

    def gauges(self) -> Gauges:
        """The counts of this moment."""
        return self._scheduler.gauges()

    def _heard(self, events: Sequence[Event]) -> list[Event]:
        for event in events:
            assert event.request_id in self._live, f"{event.request_id} has an event after its end"
            if isinstance(event, FinishedEvent):
                self._live.remove(event.request_id)
                self.ended[event.request_id] += 1
        return list(events)
