"""Wakes a thread that waits in a selector."""

from __future__ import annotations

import contextlib
import socket
import threading

READ_BYTES = 4096


class Waker:
    """Ends another thread's wait in a selector. The waiting thread registers this object with its selector for reading;
    `wake` makes the object readable. Any thread or signal handler may call `wake`, even after `close`."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        self._sending = threading.RLock()  # reentrant: a signal may come while this thread holds it

    def fileno(self) -> int:
        """The descriptor that selectors wait for."""
        return self._receiver.fileno()

    def wake(self) -> None:
        """Ends the present wait, or the next one."""
        with self._sending, contextlib.suppress(OSError):  # a byte is there already, or the socket is closed
            self._sender.send(b".")

    def clear(self) -> None:
        """Takes the bytes that woke the thread. The waiting thread calls it when it runs again."""
        with contextlib.suppress(BlockingIOError):
            while self._receiver.recv(READ_BYTES):
                pass

    def close(self) -> None:
        """Closes both sockets. Closing twice is harmless."""
        self._receiver.close()
        with self._sending:  # a byte under way must not go to a new file that got the same descriptor number
            self._sender.close()
