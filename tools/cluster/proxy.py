"""A proxy that notes the times at which bytes came back from a server, for each connection."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PIECE_BYTES = 1 << 20


@dataclass(eq=False)
class Proxy:
    """came: for each connection, the pieces that the server sent over it, as (time, bytes). The time is that of
    time.perf_counter."""

    address: str
    came: list[list[tuple[float, int]]] = field(default_factory=list)
    sockets: list[socket.socket] = field(default_factory=list)

    def carry(self, listener: socket.socket, host: str, port: int) -> None:
        """Accept connections until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection((host, port))
                notes: list[tuple[float, int]] = []
                self.came.append(notes)
                for source, target, kept in ((client, server, []), (server, client, notes)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.sockets.append(source)
                    threading.Thread(target=_pass, args=(source, target, kept), daemon=True).start()


def _pass(source: socket.socket, target: socket.socket, notes: list[tuple[float, int]]) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(PIECE_BYTES):
            target.sendall(data)
            notes.append((time.perf_counter(), len(data)))
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(address: str) -> Iterator[Proxy]:
    """Run a proxy before this address, HOST:PORT, until the end of the block."""
    host, _, port = address.rpartition(":")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Proxy(f"127.0.0.1:{listener.getsockname()[1]}")
        threading.Thread(target=found.carry, args=(listener, host, int(port)), daemon=True).start()
        try:
            yield found
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for each in found.sockets:
                each.close()
