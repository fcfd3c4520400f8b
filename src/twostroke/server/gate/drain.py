"""The end of a server, in order: no new request is taken, running requests may finish, then the socket closes."""

from __future__ import annotations

from collections.abc import Callable

from twostroke.server.gate.door import Door


class Drain:
    """The graceful shutdown of a server. After `begin`, the server's loop polls `over`, and closes the socket when it
    is True. limit_s: how many seconds running requests may take."""

    def __init__(self, door: Door, limit_s: float, clock: Callable[[], float]) -> None:
        self._door = door
        self._limit_s = limit_s
        self._clock = clock
        self._until_s: float | None = None
        self._begun_s = 0.0

    @property
    def begun(self) -> bool:
        """True once `begin` was called."""
        return self._until_s is not None

    def begin(self) -> None:
        """Takes no new requests from now on. A second call changes nothing."""
        if self._until_s is None:
            self._door.draining = True
            self._begun_s = self._clock()
            self._until_s = self._begun_s + self._limit_s

    @property
    def lasts_s(self) -> float:
        """The seconds since the drain began."""
        return self._clock() - self._begun_s

    @property
    def over(self) -> bool:
        """True when no call runs, or when the time is up."""
        return self._until_s is not None and (self._door.in_flight == 0 or self._clock() >= self._until_s)

    @property
    def cut(self) -> int:
        """The number of HTTP calls that still run. When the time of the drain is up, the server ends them
        unfinished."""
        return self._door.in_flight
