"""The other end of a connection, as the system knows it: the bytes that it has not taken yet, and whether it is still
connected."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from twostroke.system import here


class FarEnd:
    """The peer of an asyncio transport. If the system does not report how many bytes the peer has not acknowledged, 0
    is assumed."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._socket: socket.socket | None = transport.get_extra_info("socket")
        self._asked = False

    @property
    def untaken_bytes(self) -> int:
        """The bytes that were written and that the peer's system has not acknowledged: in our buffer and in the
        kernel's."""
        return self._transport.get_write_buffer_size() + self._kernel_bytes()

    @property
    def reads_nothing(self) -> bool:
        """True when the buffer of the peer's system is full, so that the program there does not read.

        False for a network that loses packets, and when the system gives no information.
        """
        if not self._kernel_bytes() or self._socket is None:
            return False
        return here.is_socket_file(self._socket) or here.unacknowledged_packets(self._socket) == 0

    def ask(self) -> None:
        """Finds out whether a peer that has ended its side still exists, by sending one byte of urgent data, once.

        A program that has only ended its side never sees the byte, which is no part of its stream. The system of a peer
        that is gone resets the connection, and soon afterwards `gone` is True.
        """
        if self._asked or self._socket is None or self._socket.fileno() < 0:
            return
        self._asked = True
        if here.is_socket_file(self._socket):
            return  # on a Unix socket, `gone` is right at once
        with contextlib.suppress(OSError), self._socket.dup() as own:
            own.setblocking(False)
            own.send(b"\n", socket.MSG_OOB)

    @property
    def gone(self) -> bool:
        """True when both sides of the connection have ended."""
        if self._socket is None or self._socket.fileno() < 0:
            return True
        return here.is_closed_by_both(self._socket)

    def drop(self) -> None:
        """Ends the connection at once. The system gives up the bytes that the peer has not taken, which it would
        otherwise keep."""
        if self._socket is not None and self._socket.fileno() >= 0:
            with contextlib.suppress(OSError):
                here.reset_on_close(self._socket)
        self._transport.abort()

    def _kernel_bytes(self) -> int:
        if self._socket is None or self._socket.fileno() < 0:
            return 0
        return here.unsent_bytes(self._socket)
