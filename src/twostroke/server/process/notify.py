"""Reports the server's state to a service manager, with systemd's protocol: lines in a datagram."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Protocol

BEATS = 3  # watchdog messages within the manager's limit


class Listener(Protocol):
    """The receiver of the server's states (started, alive, stopping): systemd, or the supervisor."""

    def send(self, **states: str) -> None:
        """Send states, such as READY="1", STATUS="text". Never raises."""


class SystemdNotifier:
    """Sends to a unix datagram socket. An address that begins with '@' is in the abstract namespace. Without an address
    it sends nothing."""

    def __init__(self, address: str | None) -> None:
        self._address = address if address is None or not address.startswith("@") else "\0" + address[1:]

    def send(self, **states: str) -> None:
        """Sends states, such as READY="1", to systemd. Where nothing listens at the address, the service goes on."""
        if self._address is None:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(message(states), self._address)


def message(states: dict[str, str]) -> bytes:
    """Returns lines NAME=value. A line end in a value would begin another state, so it becomes a space."""
    return "\n".join(f"{name}={value.replace(chr(10), ' ')}" for name, value in states.items()).encode()


class Watch:
    """The function that a serving loop calls ten times a second. It sends watchdog messages while the loop runs, and
    STOPPING once when the server drains.

    every_s: the seconds between two watchdog messages; None for none. A call returns the result of asked_to_end.
    """

    def __init__(
        self,
        tell: Listener,
        every_s: float | None,
        draining: Callable[[], bool],
        clock: Callable[[], float],
        asked_to_end: Callable[[], bool] = lambda: False,
    ) -> None:
        self._tell = tell
        self._every_s = every_s
        self._draining = draining
        self._clock = clock
        self._asked_to_end = asked_to_end
        self._next_s = 0.0
        self._stopping = False

    def __call__(self) -> bool:
        """Sends the watchdog message if it is time for it, and STOPPING once when the server begins to drain. Returns
        True when the server should end."""
        now = self._clock()
        if self._every_s is not None and now >= self._next_s:
            self._next_s = now + self._every_s
            self._tell.send(WATCHDOG="1")
        if self._draining() and not self._stopping:
            self._stopping = True
            self._tell.send(STOPPING="1", STATUS="finishing what runs")
        return self._asked_to_end()
