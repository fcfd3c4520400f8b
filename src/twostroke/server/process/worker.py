"""The worker's connection to its supervisor, over which it reports the server's states. If the connection is closed,
the supervisor has ended."""

from __future__ import annotations

import contextlib
import socket

from twostroke.server.process.notify import message


class Line:
    """The worker's end of the connection to its supervisor. It satisfies the protocol Listener: it takes states of the
    server, and sends them to the supervisor."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._socket.setblocking(False)
        self._gone = False

    def send(self, **states: str) -> None:
        """Sends states of the server, such as READY="1", to the supervisor. Never raises: states that the socket cannot
        take are dropped."""
        with contextlib.suppress(OSError):
            self._socket.send(message(states) + b"\n")

    def gone(self) -> bool:
        """True once the supervisor process has exited."""
        with contextlib.suppress(BlockingIOError, InterruptedError):
            try:
                self._gone = self._gone or not self._socket.recv(1024)
            except ConnectionError:
                self._gone = True
        return self._gone
