"""An exchange over sockets has descriptors of its own, because the number of a closed one may mean another file."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from twostroke.backends.cpu import available_levels
from twostroke.backends.cpu.exchange import Exchange
from twostroke.distributed.cluster.waker import Waker
from twostroke.distributed.ranks.line import RankLine, RankLineLost
from twostroke.lab.planner.doctor import measure_exchange
from twostroke.types.errors import BackendError


def test_an_exchange_ends_its_own_connection_and_no_file_that_took_its_number() -> None:
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as other, theirs:
        number = ours.fileno()
        exchange = Exchange.over_sockets(available_levels()[0], [-1, number], 0, 1.0)
        ours.close()
        os.dup2(other.fileno(), number)  # a listening socket under the old number
        try:
            exchange.end()
            theirs.settimeout(PATIENCE_S)
            assert theirs.recv(1) == b"", "the other rank sees the end"
            with socket.create_connection(other.getsockname(), timeout=PATIENCE_S), other.accept()[0]:
                pass
        finally:
            os.close(number)
            exchange.close()


class SlowEnd:
    """A library whose `ts_exchange_end` works until the test lets it go on."""

    def __init__(self, library: Any) -> None:
        self.library, self.calls = library, list[str]()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def ts_exchange_end(self, handle: int) -> None:
        self.begun.set()
        assert self.go_on.wait(PATIENCE_S)
        self.library.ts_exchange_end(handle)
        self.calls.append("end")

    def ts_exchange_destroy(self, handle: int) -> None:
        self.calls.append("destroy")
        self.library.ts_exchange_destroy(handle)


def test_an_exchange_that_another_thread_ends_is_freed_behind_it() -> None:
    """If it were freed before, the end would shut down whatever sockets the freed memory names."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        exchange = Exchange.over_sockets(available_levels()[0], [-1, ours.fileno()], 0, 1.0)
        slow = SlowEnd(exchange._library)
        exchange._library = slow  # type: ignore[assignment]
        ending = threading.Thread(target=exchange.end)
        ending.start()
        assert slow.begun.wait(PATIENCE_S)
        closing = threading.Thread(target=exchange.close)
        closing.start()
        closing.join(0.1)
        slow.go_on.set()
        ending.join()
        closing.join()
        assert slow.calls == ["end", "destroy"]


class SlowSocket:
    """A socket whose `send` and `recv` work until the test lets them go on."""

    family = socket.AF_UNIX

    def __init__(self) -> None:
        self.calls = list[str]()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def settimeout(self, seconds: float | None) -> None:
        """It waits as long as the test decides."""

    def send(self, data: bytes) -> int:
        return len(self._slow("used"))

    def recv(self, count: int) -> bytes:
        return self._slow("used")

    def _slow(self, name: str) -> bytes:
        self.begun.set()
        assert self.go_on.wait(PATIENCE_S)
        self.calls.append(name)
        return b""

    def shutdown(self, how: int) -> None:
        self.calls.append("shutdown")

    def close(self) -> None:
        self.calls.append("closed")


def closed_meanwhile(slow: SlowSocket, use: Callable[[], object], close: Callable[[], None]) -> list[str]:
    """The calls where one thread uses the socket and another closes it."""
    using, closing = threading.Thread(target=use), threading.Thread(target=close)
    using.start()
    assert slow.begun.wait(PATIENCE_S)
    closing.start()
    closing.join(0.05)
    slow.go_on.set()
    using.join()
    closing.join()
    return slow.calls


def test_a_line_is_closed_behind_the_thread_that_reads_it() -> None:
    """Its number may belong to another file at that thread's next call."""
    slow = SlowSocket()
    line = RankLine(slow)  # type: ignore[arg-type]

    def read() -> None:
        with pytest.raises(RankLineLost):
            line.receive()

    assert closed_meanwhile(slow, read, line.close) == ["shutdown", "used", "closed"]


def test_a_waker_is_closed_behind_the_thread_that_wakes() -> None:
    slow, waker = SlowSocket(), Waker()
    waker._sender.close()
    waker._sender = slow  # type: ignore[assignment]
    assert closed_meanwhile(slow, waker.wake, waker.close) == ["used", "closed"]


def test_ranks_that_measure_end_before_their_memory_is_given_back() -> None:
    ended, begun, failed = threading.Event(), threading.Event(), threading.Event()

    class Ops:
        def __init__(self, first: bool) -> None:
            self.first = first

        def recorder(self) -> Any:
            return SimpleNamespace(gather=lambda out, part: None, calls=list)

        def run(self, calls: Any) -> None:
            if self.first:
                assert begun.wait(PATIENCE_S)
                failed.set()
                raise BackendError("a rank is lost")
            begun.set()
            assert failed.wait(PATIENCE_S)
            threading.Event().wait(0.05)
            ended.set()

    with pytest.raises(BackendError):
        measure_exchange._seconds([Ops(True), Ops(False)], (1, 1, 1), lambda: 0.0)  # type: ignore[list-item]
    assert ended.is_set()
