"""The interface by which a session adds requests to a scheduler, ends them and pauses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from twostroke.types.event import Event
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import StepResult


class Rests(Protocol):
    """The interface that pauses ("parks") requests whose clients have stopped reading. Unknown ids change nothing."""

    def park(self, request_id: str) -> None:
        """Stop computing this request until `go_on` is called, so that others get its place in the batch. A repeated
        call changes nothing."""

    def go_on(self, request_id: str) -> None:
        """Let a parked request wait for a place in the batch again."""


class RequestBook(Protocol):
    """The interface of a scheduler that a session uses to add, end and pause requests. A session takes requests and
    makes the pieces of their answers."""

    def add(self, request: Request) -> None:
        """Queue a request."""

    def abort(self, request_id: str, now: float) -> list[Event]:
        """End a request; its pages are free at once."""

    def finish(
        self, request_id: str, reason: FinishReason, now: float, num_output_tokens: int | None = None
    ) -> list[Event]:
        """End a request for a reason that the scheduler cannot see, such as a stop string."""

    @property
    def parking(self) -> Rests:
        """The object that pauses requests while their clients do not read."""


class PlanningBook(RequestBook, Protocol):
    """A RequestBook that also plans steps, as a scheduler does."""

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running."""

    def schedule(self, now: float) -> Plan | None:
        """Returns the next step's plan; None when nothing can be computed."""

    def commit(self, plan: Plan, result: StepResult, now: float) -> Sequence[Event]:
        """Take in the result of a plan, and return its events."""

    def gauges(self) -> Any:
        """Returns the present counts of requests and pages, for metrics."""

    def holds(self, request_id: str) -> bool:
        """Returns True when a request waits although it cannot be promised the TTFT of its objective yet."""
