"""Plans that were made and whose results are still to come, oldest first.

    core = EngineCore(scheduler, executor, flight=PlansInFlight(stages, leader.begin))

A pipeline's first stage can begin a plan while its last one computes the plan before. `begin` announces that a plan
will be executed after those before it; the executor is then asked for the results in the same order. One process is a
pipeline of one stage: it begins nothing early, and each plan is executed before the next is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twostroke.types.plan import Plan


def begin_nothing(_plan: Plan) -> None:
    """Default `begin` for executors with one stage: nothing starts early."""


Begun = Callable[[Plan, float], None]
"""(plan, now): a plan was begun after others that are in flight."""


def tell_nobody(_plan: Plan, _now: float) -> None:
    """Default listener: ignores the event."""


class PlansInFlight:
    """most: plans whose results are still to come. begin: called once for each plan, in their order; it must not wait
    for a result, and must not raise: what goes wrong is raised when the plan is executed."""

    def __init__(self, most: int = 1, begin: Callable[[Plan], None] = begin_nothing) -> None:
        self._most, self._begin = most, begin
        self._open: deque[Plan] = deque()
        self.listener: Begun = tell_nobody

    def __len__(self) -> int:
        return len(self._open)

    @property
    def room(self) -> bool:
        """Whether another plan may be begun."""
        return len(self._open) < self._most

    @property
    def oldest(self) -> Plan | None:
        """The plan whose result is next; it is in flight until it has `landed`."""
        return self._open[0] if self._open else None

    def begin(self, plan: Plan, now: float) -> None:
        """The plan was made now."""
        if self._open:
            self.listener(plan, now)
        self._open.append(plan)
        self._begin(plan)

    def landed(self) -> Plan:
        """The oldest plan, which is not in flight any more."""
        return self._open.popleft()
