"""A scheduler whose prompts may be read from a disk: a request is paused until its cached pages have been read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twostroke.engine.book import PlanningBook, Rests
from twostroke.engine.disk.disk_pages import DiskPages
from twostroke.types.event import Event, FinishedEvent
from twostroke.types.images import keys_of
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import StepResult


class DiskBook:
    """A scheduler around another one (`book`) that reads cached prompts from a disk: a new request whose pages are on
    the disk is paused until they are read. Satisfies PlanningBook. told: called when such a request goes on, with its
    id, the number of tokens read and the seconds of the pause."""

    def __init__(self, book: PlanningBook, disk: DiskPages, told: Callable[[str, int, float], None]) -> None:
        self._book, self.disk, self._told = book, disk, told

    @property
    def has_work(self) -> bool:
        """True while a request waits, is paused or runs, and while pages are to be copied for the disk."""
        return self._book.has_work or self.disk.has_work

    @property
    def parking(self) -> Rests:
        return self._book.parking

    def before_step(self) -> bool:
        """Take in the pages that were read, and let their requests go on. The engine calls it before each step; its
        time does not count as the step's. Returns True when there was nothing to do but wait for the disk."""
        if not self.disk.has_work:
            return False
        reading = self.disk.reading
        gauges = self._book.gauges()
        idle = not (gauges.running or gauges.waiting)
        for came in self.disk.between_steps(idle):
            self._told(came.request_id, came.tokens, came.seconds)
            self._book.parking.go_on(came.request_id)
        return idle and reading

    def schedule(self, now: float) -> Plan | None:
        return self._book.schedule(now)

    def commit(self, plan: Plan, result: StepResult, now: float) -> Sequence[Event]:
        return self._ended(self._book.commit(plan, result, now))

    def gauges(self) -> Any:
        return self._book.gauges()

    def add(self, request: Request) -> None:
        """Queue a request; it is paused while its pages are read."""
        self._book.add(request)
        self.disk.wish(request.request_id, request.disk_s)
        if request.steered:
            return
        tokens = (*request.prompt_token_ids, *request.resumed_token_ids)
        keys = keys_of(tokens, request.images) if request.images else tokens
        if self.disk.begin(request.request_id, request.cache_salt, keys, may_skip=not request.wants_rows):
            self._book.parking.park(request.request_id)

    def holds(self, request_id: str) -> bool:
        return self._book.holds(request_id)

    def abort(self, request_id: str, now: float) -> list[Event]:
        return list(self._ended(self._book.abort(request_id, now)))

    def finish(
        self, request_id: str, reason: FinishReason, now: float, num_output_tokens: int | None = None
    ) -> list[Event]:
        return list(self._ended(self._book.finish(request_id, reason, now, num_output_tokens)))

    def _ended(self, events: Sequence[Event]) -> Sequence[Event]:
        for event in events:
            if isinstance(event, FinishedEvent):
                self.disk.cancel(event.request_id)
        return events
