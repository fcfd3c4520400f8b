"""The interface by which a session adds requests to a planner, ends them and parks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from twostroke.types.event import Event
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import StepResult


class Rests(Protocol):
    """The interface that parks single requests. Unknown ids change nothing."""

    def park(self, request_id: str) -> None:
        """Stop computing this request until `go_on` is called; other requests get its place. A repeated call changes
        nothing."""

    def go_on(self, request_id: str) -> None:
        """Let a parked request go on: it waits for a place again."""


class RequestBook(Protocol):
    """The part of the scheduler that a session uses."""

    def add(self, request: Request) -> None:
        """Queue a request."""

    def abort(self, request_id: str, now: float) -> list[Event]:
        """End a request; its pages are free at once."""

    def finish(
        self, request_id: str, reason: FinishReason, now: float, num_output_tokens: int | None = None
    ) -> list[Event]:
        """End a request with a reason that the scheduler cannot see."""

    @property
    def parking(self) -> Rests:
        """The place for requests whose readers have stopped."""


class PlanningBook(RequestBook, Protocol):
    """The interface that takes requests in and plans their steps."""

    @property
    def has_work(self) -> bool:
        """See `core.Planner`, also for the other methods."""

    def schedule(self, now: float) -> Plan | None:
        """Returns what to compute next; None when there is nothing."""

    def commit(self, plan: Plan, result: StepResult, now: float) -> Sequence[Event]:
        """Take in the result of a plan."""

    def gauges(self) -> Any:
        """Returns the present counts."""

    def holds(self, request_id: str) -> bool:
        """Returns True when a request waits for a promise that could not be given yet."""
