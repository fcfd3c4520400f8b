"""Plans that were made and whose results are still to come, oldest first.

    core = EngineCore(scheduler, executor, flight=PlansInFlight(stages, leader.begin))

A pipeline's first stage can begin a plan while its last stage still computes the plan before. `begin` announces that a
plan will be executed after those before it; the executor is then asked for the results in the same order. One process
is a pipeline of one stage: it begins nothing early, and each plan is executed before the next is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from typing import NamedTuple, Protocol

from twostroke.types.plan import Plan


def begin_nothing(_plan: Plan) -> None:
    """Do nothing. It is the default of `begin`, for executors with one stage."""


class FlightListener(Protocol):
    """Gets a call for each plan that begins while earlier plans are in flight. PlansInFlight sets `in_flight` to
    itself; `request_id in in_flight` then tells whether a request is in such a plan."""

    in_flight: Container[str]

    def begun(self, plan: Plan, now: float) -> None:
        """Note a plan that begins while earlier plans are in flight."""


class _Begun(NamedTuple):
    """A plan that was begun, and whose result is still to come. request_ids: the ids of its requests when an earlier
    plan was in flight at that time; otherwise empty."""

    plan: Plan
    request_ids: frozenset[str]


class PlansInFlight:
    """The plans that were begun and whose results are still to come. most: the most of them at a time. begin: called
    once for each plan, in their order. It must not wait for a result, and must not raise: an error is raised later,
    when the plan is executed.

    `request_id in flight` is True when a plan contains the request and was begun while an earlier plan was in flight. A
    stage may then compute this plan during a step of another plan. So the ledger counts the time of that step as the
    request's own.
    """

    def __init__(self, most: int = 1, begin: Callable[[Plan], None] = begin_nothing) -> None:
        self._most, self._begin = most, begin
        self._open: deque[_Begun] = deque()
        self._listener: FlightListener | None = None

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, request_id: object) -> bool:
        return any(request_id in each.request_ids for each in self._open)

    @property
    def room(self) -> bool:
        """True when another plan may be begun."""
        return len(self._open) < self._most

    @property
    def oldest(self) -> Plan | None:
        """The plan that is executed next; it is in flight until `landed` is called. None where none is in flight."""
        return self._open[0].plan if self._open else None

    def tell(self, listener: FlightListener) -> None:
        """Sets the listener that gets all later plans."""
        self._listener, listener.in_flight = listener, self

    def begin(self, plan: Plan, now: float) -> None:
        """Begin a plan, which was just made."""
        names: frozenset[str] = frozenset()
        if self._open:
            names = frozenset(each.request.request_id for each in plan.sequences)
            if self._listener is not None:
                self._listener.begun(plan, now)
        self._open.append(_Begun(plan, names))
        self._begin(plan)

    def landed(self) -> Plan:
        """Remove the oldest plan, whose result has come, and return it."""
        return self._open.popleft().plan
