"""An exchange over sockets holds descriptors of its own: a number that was closed may mean another file by then."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

from twostroke.backends.cpu import available_levels
from twostroke.backends.cpu.exchange import Exchange


def test_an_exchange_ends_its_own_connection_and_no_file_that_took_its_number() -> None:
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as other, theirs:
        number = ours.fileno()
        exchange = Exchange.over_sockets(available_levels()[0], [-1, number], 0, 1.0)
        ours.close()
        os.dup2(other.fileno(), number)  # a listening socket under the old number
        try:
            exchange.end()
            theirs.settimeout(5)
            assert theirs.recv(1) == b"", "the other rank sees the end"
            with socket.create_connection(other.getsockname(), timeout=5), other.accept()[0]:
                pass
        finally:
            os.close(number)
            exchange.close()


class SlowEnd:
    """A library whose `ts_exchange_end` is still at work until it is let go on."""

    def __init__(self, library: Any) -> None:
        self.library, self.calls = library, list[str]()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def ts_exchange_end(self, handle: int) -> None:
        self.begun.set()
        assert self.go_on.wait(20)
        self.library.ts_exchange_end(handle)
        self.calls.append("end")

    def ts_exchange_destroy(self, handle: int) -> None:
        self.calls.append("destroy")
        self.library.ts_exchange_destroy(handle)


def test_an_exchange_that_another_thread_ends_is_freed_behind_it() -> None:
    """Freed before, the end would shut down whatever sockets the freed memory names."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        exchange = Exchange.over_sockets(available_levels()[0], [-1, ours.fileno()], 0, 1.0)
        slow = SlowEnd(exchange._library)
        exchange._library = slow  # type: ignore[assignment]
        ending = threading.Thread(target=exchange.end)
        ending.start()
        assert slow.begun.wait(20)
        closing = threading.Thread(target=exchange.close)
        closing.start()
        closing.join(0.1)
        slow.go_on.set()
        ending.join()
        closing.join()
        assert slow.calls == ["end", "destroy"]
