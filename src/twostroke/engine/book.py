"""What a session asks of what plans its requests: to take them in, to end them, to let them rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from twostroke.types.event import Event
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import StepResult


class Rests(Protocol):
    """What lets single requests rest. Unknown ids change nothing."""

    def park(self, request_id: str) -> None:
        """Compute it no more, until it goes on; others get its place. It may be said more than once."""

    def go_on(self, request_id: str) -> None:
        """It was parked, and wants its place again."""


class RequestBook(Protocol):
    """The part of the scheduler that a session uses."""

    def add(self, request: Request) -> None:
        """Queue a request."""

    def abort(self, request_id: str, now: float) -> list[Event]:
        """End it; its pages are free at once."""

    def finish(
        self, request_id: str, reason: FinishReason, now: float, num_output_tokens: int | None = None
    ) -> list[Event]:
        """End it with a reason that the scheduler cannot see."""

    @property
    def parking(self) -> Rests:
        """Where requests rest whose readers have stopped."""


class PlanningBook(RequestBook, Protocol):
    """What takes requests in and plans their steps."""

    @property
    def has_work(self) -> bool:
        """See `core.Planner`, as the other methods."""

    def schedule(self, now: float) -> Plan | None:
        """What to compute next; None where there is nothing."""

    def commit(self, plan: Plan, result: StepResult, now: float) -> Sequence[Event]:
        """Take in what a plan gave."""

    def gauges(self) -> Any:
        """Counts of this moment."""

    def holds(self, request_id: str) -> bool:
        """Does a request wait for a promise that could not be given yet?"""
