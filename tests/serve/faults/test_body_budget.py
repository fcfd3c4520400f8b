"""Bodies that are read at the same time share one budget of bytes. The sockets are real."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serve.fakes import MODEL, FakeEngine, fake_parts
from tests.serve.harness import WAIT_S, Live, serving, wait_until
from tests.serve.shown.test_metrics import scrape
from twostroke.assembly.settings.config import BODY_MEMORY_BYTES
from twostroke.server.admission import Limits
from twostroke.server.build import build_server
from twostroke.server.errors import HttpProblem
from twostroke.server.gate import body_budget
from twostroke.server.gate.body_budget import BodyBudget

LIMIT = 10_000
BODY = json.dumps({"model": MODEL, "prompt": "hi", "max_tokens": 3}).encode()
PADDED = BODY + b" " * (6_000 - len(BODY))


@contextmanager
def sender(live: Live, head: str, sent: bytes) -> Iterator[socket.socket]:
    """A client that sends this much and then waits."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=WAIT_S) as connection:
        connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n".encode() + sent)
        yield connection


def answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    reply = http.client.HTTPResponse(connection)
    reply.begin()
    return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()


def held(live: Live, size_bytes: int) -> None:
    wait_until(lambda: scrape(live)["twostroke_body_bytes"] == size_bytes, f"{size_bytes} bytes held")


@pytest.fixture
def live() -> Iterator[Live]:
    with serving(fake_parts(FakeEngine(), bodies=BodyBudget(LIMIT))) as server:
        yield server


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def test_beyond_the_budget_a_body_is_503_and_nothing_of_it_is_kept(live: Live) -> None:
    with sender(live, f"Content-Length: {len(PADDED)}", PADDED[:5_999]) as first:
        held(live, 5_999)
        with sender(live, "Content-Length: 5000", b"") as announced:
            status, headers, body = answer(announced)
        assert (status, json.loads(body)["error"]["code"]) == (503, "bodies_full")
        assert int(headers["retry-after"]) >= 1 and int(headers["retry-after-ms"]) >= 1
        with sender(live, "Transfer-Encoding: chunked", chunk(b" " * 3_000) + chunk(b" " * 3_000)) as chunked:
            status, headers, body = answer(chunked)
            assert (status, json.loads(body)["error"]["code"]) == (503, "bodies_full")
            assert headers["connection"] == "close" and chunked.recv(10) == b"", "the server reads no more"
        held(live, 5_999)
        assert live.complete(max_tokens=3).status == 200, "a small one fits"
        first.sendall(PADDED[5_999:])
        assert answer(first)[0] == 200, "a request inside is answered"
    held(live, 0)
    found = scrape(live)
    assert found["twostroke_refusals_total{reason=bodies_full}"] == 2
    assert found["twostroke_http_responses_total{status=503}"] == 2


def test_bytes_that_are_announced_and_do_not_come_take_nothing(live: Live) -> None:
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(sender(live, "Content-Length: 5000", b" " * 10))
        held(live, 80)
        assert live.post("/v1/completions", PADDED).status == 200
    held(live, 0)


def test_one_body_alone_may_pass_the_budget_or_it_would_never_be_read(live: Live) -> None:
    assert live.post("/v1/completions", BODY + b" " * (2 * LIMIT)).status == 200
    assert live.post("/tokenize", BODY + b" " * (2 * LIMIT)).status == 200
    held(live, 0)


def test_any_ends_give_back_what_was_taken() -> None:
    with serving(fake_parts(FakeEngine(), bodies=BodyBudget(LIMIT), limits=Limits(body_bytes=8_000))) as live:
        with sender(live, "Content-Length: 5000", b" " * 3_000):
            held(live, 3_000)
        held(live, 0)  # the client has gone away
        with sender(live, "Transfer-Encoding: chunked", chunk(b" " * 5_000) + chunk(b" " * 5_000)) as long:
            assert answer(long)[0] == 413
        held(live, 0)
        for wrong in (b"{", b'{"model": 1}', BODY.replace(b"fake", b"other")):
            assert live.post("/v1/completions", wrong).status in (400, 404)
        held(live, 0)
    with serving(fake_parts(FakeEngine(), bodies=BodyBudget(LIMIT), limits=Limits(body_idle_s=0.2))) as live:
        with sender(live, "Content-Length: 5000", b" " * 3_000) as silent:
            assert answer(silent)[0] == 408
        held(live, 0)


def test_the_budget_is_an_option() -> None:
    assert BODY_MEMORY_BYTES == body_budget.BODY_MEMORY_BYTES
    with build_server("spark", {"kv_memory": "4MB", "threads": 1, "body_memory": "1MiB"}) as built:
        assert built.parts.admission.bodies.limit_bytes == 2**20


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 80)), max_size=60))
def test_never_more_than_the_budget_or_one_body_alone(takes: list[tuple[int, int]]) -> None:
    budget, own = BodyBudget(100), [0] * 6
    for who, more in takes:
        try:
            budget.take(more, own[who])
        except HttpProblem:
            budget.give_back(own[who])
            own[who] = 0
        else:
            own[who] += more
        assert budget.held_bytes == sum(own)
        assert budget.held_bytes <= 100 or sum(size > 0 for size in own) == 1
