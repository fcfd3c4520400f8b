"""An exchange over sockets holds descriptors of its own: a number that was closed may mean another file by then."""

from __future__ import annotations

import os
import socket

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
