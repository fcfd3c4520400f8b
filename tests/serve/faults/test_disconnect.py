"""A client that goes away takes its request with it, at once and without a trace."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from select import select

import pytest

from tests.patience import PATIENCE_S
from tests.serve.fakes import FakeEngine, Turnstile, fake_parts
from tests.serve.harness import WAIT_S, Live, reader_that_does_not_read, serving, wait_until


def _send(live: Live, **fields: object) -> socket.socket:
    body = json.dumps({"model": live.model, "prompt": "x", **fields}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", live.port), timeout=PATIENCE_S)
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["x", ["x", "y", "z"]], ids=["one", "three"])
def test_disconnect_closes_the_engines_streams(stream: bool, prompt: object) -> None:
    engine = FakeEngine("a" * 500)
    sequences = 4 * 2 * (3 if isinstance(prompt, list) else 1)
    engine.gate = gate = Turnstile(sequences // 2)  # there are as many pieces as prompts, so no answer can be whole
    with serving(fake_parts(engine)) as live:
        connections = [_send(live, stream=stream, prompt=prompt, n=2, max_tokens=400) for _ in range(4)]
        wait_until(lambda: engine.live == sequences, "all requests running")
        if stream:
            assert select(connections, [], [], WAIT_S)[0], "a stream has begun"
        for connection in connections:
            connection.close()
        wait_until(lambda: engine.live == 0, "all requests aborted")
        assert engine.closed_early == sequences // 2
        gate.let(live.loop)
        assert live.complete().status == 200


def test_disconnect_before_the_first_token() -> None:
    engine = FakeEngine()
    engine.gate = asyncio.Event()
    with serving(fake_parts(engine)) as live:
        connection = _send(live, stream=True)
        wait_until(lambda: engine.live == 1, "the request running")
        connection.close()
        wait_until(lambda: engine.live == 0, "the request aborted")


def test_disconnect_in_the_middle_of_the_body_reaches_no_engine() -> None:
    engine = FakeEngine()
    with serving(fake_parts(engine)) as live:
        connection = socket.create_connection(("127.0.0.1", live.port), timeout=PATIENCE_S)
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        connection.close()
        assert live.get("/health").status == 200
    assert not engine.prompts


def test_a_body_that_stops_coming_is_408() -> None:
    parts = fake_parts()
    limits = parts.admission.limits.__class__(body_idle_s=0.1)
    with serving(fake_parts(limits=limits)) as live:
        connection = socket.create_connection(("127.0.0.1", live.port), timeout=PATIENCE_S)
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")
        connection.close()


def test_a_reader_that_stops_reading_is_dropped() -> None:
    engine = FakeEngine("a" * 900)
    engine.token_s = 1e-4  # the buffers are full long before the answer is whole
    limits = fake_parts().admission.limits.__class__(stalled_s=0.3)
    with serving(fake_parts(engine, limits=limits)) as live, reader_that_does_not_read(live):
        wait_until(lambda: engine.peak == 100 and engine.live == 0, "the request dropped")
        assert engine.closed_early == 1


def test_a_keep_alive_connection_serves_many_requests() -> None:
    with serving(fake_parts()) as live:
        connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=PATIENCE_S)
        for stream in (False, True, False, True):
            body = json.dumps({"model": live.model, "prompt": "x", "stream": stream})
            connection.request("POST", "/v1/completions", body)
            assert connection.getresponse().read()
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
