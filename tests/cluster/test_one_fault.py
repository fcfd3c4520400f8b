"""One call to the system fails, whichever it is. Then that connection is lost, and nothing else."""

from __future__ import annotations

import errno
import random
import selectors
import socket
import subprocess
import threading
import time
from typing import Any

import pytest

from tests.cluster.test_links import FACTS, NoGrammars, core, exchange_until, front
from tests.fleet.world import request_of
from tests.serve.harness import WAIT_S
from twostroke.distributed.cluster import front as front_module
from twostroke.distributed.cluster import keeper as keeper_module
from twostroke.distributed.cluster.accepting import accepted
from twostroke.distributed.cluster.keeper import LocalKeeper
from twostroke.distributed.cluster.link import secret_key
from twostroke.distributed.replica import server as replica_module
from twostroke.distributed.replica.server import ReplicaServer
from twostroke.types.errors import BackendError
from twostroke.types.event import FinishedEvent


class Faults:
    """Makes number k of all counted calls fail."""

    def __init__(self, k: int) -> None:
        self.left, self.name = k, ""

    def count(self, name: str) -> None:
        self.left -= 1
        if self.left == -1:
            self.name = name
            raise OSError(errno.EIO, name)


class FaultySocket:
    """A connected socket whose calls are counted."""

    def __init__(self, sock: socket.socket, faults: Faults) -> None:
        self._sock, self._faults, self.family = sock, faults, sock.family

    def fileno(self) -> int:
        return self._sock.fileno()

    def __getattr__(self, name: str) -> Any:
        def call(*words: Any) -> Any:
            found = getattr(self._sock, name)(*words) if name == "close" else None
            self._faults.count(name)
            return found if name == "close" else getattr(self._sock, name)(*words)

        return call


class FaultyListener:
    """A listener whose connections are FaultySockets."""

    def __init__(self, faults: Faults) -> None:
        self._sock, self._faults = socket.create_server(("127.0.0.1", 0)), faults
        self.address = self._sock.getsockname()[:2]
        self.setblocking, self.fileno, self.close = self._sock.setblocking, self._sock.fileno, self._sock.close

    def accept(self) -> Any:
        self._faults.count("accept")
        sock, address = self._sock.accept()
        return FaultySocket(sock, self._faults), address


class FaultySelector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Like real selectors, it forgets a socket whose awaited events it cannot change."""

    faults: Faults

    def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
        if isinstance(fileobj, FaultySocket):
            self.faults.count("register")
        return super().register(fileobj, events, data)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> Any:
        try:
            self.faults.count("modify")
        except OSError:
            self.unregister(fileobj)
            raise
        return super().modify(fileobj, events, data)


def answered_in_spite_of(faults: Faults) -> None:
    listener = FaultyListener(faults)
    made = ReplicaServer(core(), FACTS, NoGrammars(), listener, secret_key(None), print)  # type: ignore[arg-type]
    made._selector = FaultySelector()
    made._selector.faults = faults
    thread = threading.Thread(target=made.serve)
    thread.start()
    stepper = front([listener.address])
    try:
        stepper.fleet.add(request_of(random.Random(3), "q", time.monotonic()))
        exchange_until(stepper, lambda: any(isinstance(e, FinishedEvent) for e in stepper._early), "no end")
        assert thread.is_alive()
    finally:
        stepper.close()
        made.stop()
        thread.join(WAIT_S)
        listener.close()


def test_whichever_call_of_a_connection_fails_the_replica_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "CALL_AGAIN_S", 0.001)
    monkeypatch.setattr(replica_module, "BEAT_S", 0.01)
    failed = set()
    for k in range(14):
        faults = Faults(k)
        answered_in_spite_of(faults)
        failed.add(faults.name)
    assert failed >= {"accept", "setblocking", "setsockopt", "register", "send", "recv_into"}


def test_a_listener_that_is_broken_ends_the_replica() -> None:
    with socket.socket() as unbound, pytest.raises(BackendError, match="listening socket is broken"):
        accepted(unbound)


def test_a_replica_that_could_not_be_started_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def popen(command: Any, **words: Any) -> Any:
        tries.append(command)
        if len(tries) == 1:
            raise OSError(errno.EAGAIN, "no process left")
        return real([*command], **words)

    real = subprocess.Popen
    monkeypatch.setattr(keeper_module, "FIRST_DELAY_S", 0.0)
    monkeypatch.setattr(keeper_module.subprocess, "Popen", popen)
    keeper = LocalKeeper(1, lambda name, descriptor: ["sh", "-c", "exit 3"], {}, lambda text: None)
    keeper.start()
    keeper._threads[0].join(WAIT_S)
    assert len(tries) == 2 and keeper.failed == 3
    keeper.close()
