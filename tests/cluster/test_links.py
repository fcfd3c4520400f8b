"""Real sockets between a front and replicas without a model: greeting, secrets, differences, silence."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.fleet.invented import InventedModel, whole_answer
from tests.fleet.world import ARITHMETIC, SameTime, explainer, request_of
from tests.serve.harness import WAIT_S
from twostroke.cli.server.cluster import command as cluster
from twostroke.distributed.cluster.framing import encode
from twostroke.distributed.cluster.front import FrontStepper
from twostroke.distributed.cluster.link import FrameLink, LinkLost, secret_key
from twostroke.distributed.replica import server as replica_module
from twostroke.distributed.replica.core import ReplicaCore
from twostroke.distributed.replica.page_feeds import PageFeeds
from twostroke.distributed.replica.server import ReplicaServer
from twostroke.distributed.replica.streams import LoopStreams
from twostroke.distributed.wire.frames import Assignment, Cancel, Hello, ReplicaFacts
from twostroke.distributed.wire.translate import wire_request
from twostroke.engine.beams.book import BeamBook
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.step_loop import StepLoop
from twostroke.types.errors import ConfigError
from twostroke.types.event import FinishedEvent, TokenEvent
from twostroke.types.grammar import Grammar

FACTS = ReplicaFacts("a", "i", "m", ARITHMETIC, 4, 96, 96, 50, 4, 0.001)


class NoGrammars:
    def submit(self, grammar: Any, count: int) -> Future[Any]:
        raise AssertionError


class SlowGrammars:
    """futures: the grammars that are being compiled; the test completes them."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, grammar: Any, count: int) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]


def core() -> ReplicaCore:
    book = BeamBook(Scheduler(CacheManager(24, 4), SchedulerLimits(16, 4, 1)), lambda request: None)
    loop = StepLoop(book, InventedModel(), time.monotonic, print, lambda: None)
    return ReplicaCore(LoopStreams(loop, SameTime(), explainer()))  # type: ignore[arg-type]


@contextmanager
def replica(facts: ReplicaFacts = FACTS, secret: str | None = None, port: int = 0) -> Iterator[tuple[str, int]]:
    listener = socket.create_server(("127.0.0.1", port))
    said: list[str] = []
    made = ReplicaServer(core(), facts, NoGrammars(), listener, secret_key(secret), said.append)
    thread = threading.Thread(target=made.serve)
    thread.start()
    try:
        yield listener.getsockname()[:2]
    finally:
        made.stop()
        thread.join(WAIT_S)
        listener.close()
        assert not thread.is_alive()


def front(addresses: list[tuple[str, int]], secret: str | None = None) -> FrontStepper:
    return FrontStepper(addresses, 4, secret_key(secret), time.monotonic, print, lambda text: None)


def exchange_until(stepper: FrontStepper, true: Any, what: str) -> None:
    until_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < until_s, f"{what}: {stepper.states()}"
        stepper._exchange()


def test_a_request_goes_there_and_its_answer_comes_back() -> None:
    with replica() as address:
        stepper = front([address])
        stepper.first_facts(WAIT_S)
        request = request_of(random.Random(3), "q", time.monotonic())
        stepper.fleet.add(request)
        exchange_until(stepper, lambda: any(isinstance(e, FinishedEvent) for e in stepper._early), "no end")
        told = [e.token_id for e in stepper._early if isinstance(e, TokenEvent)]
        (end,) = [e for e in stepper._early if isinstance(e, FinishedEvent)]
        assert told + ([] if end.stopped_by is None else [end.stopped_by]) == whole_answer(request)
        stepper.close()


def test_streams_do_not_wait_while_a_question_for_pages_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageFeeds, "waits", True)
    monkeypatch.setattr(replica_module, "RETRY_S", WAIT_S)
    test_a_request_goes_there_and_its_answer_comes_back()


def test_a_wrong_secret_learns_nothing() -> None:
    with replica(secret="one") as address:
        stepper = front([address], "another")
        exchange_until(stepper, lambda: "secret" in stepper.states()[0][1], "not refused")
        with pytest.raises(ConfigError, match="secret"):
            stepper.first_facts(0.4)  # it is called again in the meantime
        assert stepper.facts is None
        stepper.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "other"}, "the model"),
        ({"page_tokens": 8}, "page size"),
        ({"arithmetic": msgspec.structs.replace(ARITHMETIC, weights="int4")}, r"weights \(int8 and int4\)"),
        ({"arithmetic": msgspec.structs.replace(ARITHMETIC, key_factors="ab")}, r"key_factors \(none and ab\)"),
        ({"arithmetic": msgspec.structs.replace(ARITHMETIC, probe="q")}, "probe"),
    ],
)
def test_a_replica_that_differs_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    other = msgspec.structs.replace(FACTS, name="b", **change)
    with replica() as first, replica(other) as second:
        addresses = [first]
        stepper = front(addresses)
        stepper.first_facts(WAIT_S)
        addresses.append(second)
        exchange_until(stepper, lambda: "differs" in stepper.states()[-1][1], "not refused")
        assert pytest.raises(AssertionError, match=words) and __import__("re").search(words, stepper.states()[1][1])
        assert [m.name for m in stepper.fleet.members] == ["a"]
        stepper.close()


def test_an_error_names_each_address_where_no_replica_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        silent = taken.getsockname()[:2]
        stepper = front([silent])
        with pytest.raises(ConfigError, match=str(silent[1])):
            stepper.first_facts(0.3)
        stepper.close()


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 64, b"\xff" * 64, encode(Hello(99, b"n" * 32))])
def test_noise_ends_the_connection_and_nothing_else(noise: bytes) -> None:
    with replica() as address:
        with socket.create_connection(address) as sock:
            sock.sendall(noise)
            sock.settimeout(WAIT_S)
            while sock.recv(4096):
                pass
        stepper = front([address])
        stepper.first_facts(WAIT_S)
        stepper.close()


def test_work_before_the_greeting_is_refused() -> None:
    one, other = socket.socketpair()
    link = FrameLink(one, secret_key(None), "replica", "front")
    other.sendall(encode(FACTS))
    with pytest.raises(LinkLost, match="before its greeting"):
        link.receive()
    link.close()
    other.close()


def test_a_proof_cannot_be_sent_back() -> None:
    """Both sides of one connection use the same word. Each would accept its own proof as the other's."""
    one, other = socket.socketpair()
    left, right = (
        FrameLink(one, secret_key("s"), "front", "replica"),
        FrameLink(other, secret_key("s"), "front", "replica"),
    )
    with pytest.raises(LinkLost, match="secret"):
        for _ in range(4):
            left.receive()
            right.receive()
    left.close()
    right.close()


def test_a_replica_that_comes_back_is_used_again() -> None:
    with replica() as address:
        stepper = front([address])
        stepper.first_facts(WAIT_S)
    fleet = stepper.fleet
    exchange_until(stepper, lambda: not fleet.members, "still there")
    with replica(port=address[1]):
        exchange_until(stepper, lambda: len(fleet.members) == 1, "not back")
    stepper.close()


def test_the_list_of_addresses_may_change() -> None:
    other = msgspec.structs.replace(FACTS, name="b")
    with replica() as first, replica(other) as second:
        addresses = [first]
        stepper = front(addresses)
        stepper.first_facts(WAIT_S)
        addresses.append(second)
        exchange_until(stepper, lambda: len(stepper.fleet.members) == 2, "the new one is not called")
        addresses.remove(second)
        stepper._exchange()
        assert len(stepper.fleet.members) == 2, "one that answers is used as long as it does"
    addresses.clear()
    exchange_until(stepper, lambda: not stepper.states(), "addresses that are gone are still called")
    stepper.close()


def test_status_says_who_answers_and_ends_with_its_code() -> None:
    with replica(msgspec.structs.replace(FACTS, role="decode")) as (host, port):
        found = CliRunner().invoke(cluster, ["status", "--replicas", f"{host}:{port}"])
        assert found.exit_code == 0 and found.output.split() == [f"{host}:{port}", "ready", "a", "decode"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("twostroke.cli.server.cluster.STATUS_S", 0.3)
        gone = CliRunner().invoke(cluster, ["status", "--replicas", f"{host}:{port}"])
    assert gone.exit_code == 1 and "does not answer" in gone.output


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_stream_that_ends_while_its_grammar_is_compiled_is_never_computed(cancelled: bool) -> None:
    grammars, made = SlowGrammars(), core()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = ReplicaServer(made, FACTS, grammars, listener, secret_key(None), print)
        made.open(1)
        request = request_of(random.Random(3), "q", 0.0)
        params = replace(request.params, grammar=Grammar.regex("a*"))
        server._take(1, Assignment(7, wire_request(replace(request, params=params), 0.0)))
        assert not server._idle(), "a draining replica must wait for it"
        if cancelled:
            server._take(1, Cancel(7))
        grammars.futures[0].set_result((None,))
        server._take_commands()
        assert made.has_work is not cancelled
        assert server._idle() is cancelled
