"""One time line for many replicas. What comes next is the earliest event, such as an arrival, or the earliest step of a
replica."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from twostroke.lab.sim.replica import Replica

Handle = Callable[[float], None]


class Timeline:
    """Runs events, and turns of replicas, in order of time. In a turn a replica runs a step. An event goes before a
    turn that begins at the same time; events of one time keep their order."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Handle]] = []
        self._turns: list[tuple[float, int, Replica]] = []
        self._order = itertools.count()

    def at(self, at_s: float, handle: Handle) -> None:
        """Calls handle(at_s) when its time has come."""
        heapq.heappush(self._events, (at_s, next(self._order), handle))

    def expect(self, replica: Replica) -> None:
        """Notes when the replica's next turn is. It must be called after anything that may have changed that time."""
        if replica.next_s < math.inf:
            heapq.heappush(self._turns, (replica.next_s, next(self._order), replica))

    def run(self) -> None:
        """Runs until no event is left and no replica has anything to do."""
        while self._events or self._turns:
            event_s = self._events[0][0] if self._events else math.inf
            if self._turns and self._turns[0][0] < event_s:
                turn_s, _, replica = heapq.heappop(self._turns)
                if replica.next_s == turn_s:  # outdated entries are skipped
                    replica.turn()
                    self.expect(replica)
            else:
                at_s, _, handle = heapq.heappop(self._events)
                handle(at_s)
