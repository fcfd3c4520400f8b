"""Connections as hostile or old clients use them: two lengths, an end of one side, an answer that nobody reads."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import struct
import threading
from contextlib import suppress

import pytest
from msgspec import structs

from tests.serve.fakes import FakeEngine, Turnstile, fake_parts
from tests.serve.harness import WAIT_S, Live, is_framed, serving, wait_until
from twostroke.server.gate.far_end import FarEnd
from twostroke.server.parts import ServerParts


def connected(live: Live) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.port), timeout=WAIT_S)


def asked(live: Live, more: str = "", **fields: object) -> bytes:
    body = json.dumps({"model": live.model, "prompt": "x", **fields})
    return (
        f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )


def everything(connection: socket.socket) -> bytes:
    """All bytes up to the end of the connection by the server."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def patient(engine: FakeEngine, **limits: float) -> ServerParts:
    return fake_parts(engine, limits=structs.replace(fake_parts().admission.limits, **limits))


TWO_LENGTHS = ("Content-Length: 4", "Transfer-Encoding: chunked")


@pytest.mark.parametrize("lengths", [TWO_LENGTHS, TWO_LENGTHS[::-1]])
def test_a_request_with_two_lengths_is_refused_and_nothing_after_it_is_served(
    live: Live, lengths: tuple[str, str]
) -> None:
    hidden = "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + "\r\n".join(lengths) + "\r\n\r\n"
    with connected(live) as connection:
        connection.sendall((head + "0\r\n\r\n" + hidden).encode())
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"Content-Length and Transfer-Encoding" in answer
    assert b"connection: close" in answer.lower()
    assert is_framed(answer)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_has_ended_its_side_gets_its_answer(stream: bool) -> None:
    engine = FakeEngine("hello")
    engine.gate = gate = Turnstile(0)
    with serving(fake_parts(engine)) as live, connected(live) as connection:
        connection.sendall(asked(live, stream=stream))
        connection.shutdown(socket.SHUT_WR)
        wait_until(lambda: engine.live == 1, "the request running")
        gate.let(live.loop)
        answer = everything(connection)  # the server ends the connection, because no request can follow
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert (b"data: [DONE]" if stream else b'"text":"hello"') in answer
    assert engine.closed_early == 0


def test_requests_in_one_piece_are_all_answered_before_the_end(live: Live) -> None:
    with connected(live) as connection:
        connection.sendall(asked(live) + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + asked(live))
        connection.shutdown(socket.SHUT_WR)
        answer = everything(connection)
    assert answer.count(b"HTTP/1.1 200 ") == 3


@pytest.mark.parametrize("lines", [b"\r\n", b"\r\n" * 3, b"\n"])
def test_empty_lines_in_front_of_a_request_are_ignored(live: Live, lines: bytes) -> None:
    with connected(live) as connection:
        for place in range(len(lines)):  # in pieces, cut anywhere
            connection.sendall(lines[place : place + 1])
        connection.sendall(asked(live) + lines + asked(live) + lines)
        connection.shutdown(socket.SHUT_WR)
        answer = everything(connection)
    assert answer.count(b"HTTP/1.1 200 ") == 2 and b"HTTP/1.1 400" not in answer


def test_a_connection_of_empty_lines_alone_has_an_end() -> None:
    with serving(patient(FakeEngine(), header_s=0.2)) as live, connected(live) as connection:
        connection.sendall(b"\r\n" * 1000)
        with suppress(ConnectionResetError):  # how the server ends a connection that brings no request
            assert everything(connection) == b""


def test_an_end_in_the_middle_of_a_request_ends_the_connection(live: Live) -> None:
    for sent in (b"", b"GET /hea", asked(live)[:-1]):
        with connected(live) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert everything(connection) == b""


def test_a_client_that_is_gone_after_it_ended_its_side_ends_its_request() -> None:
    engine = FakeEngine()
    engine.gate = Turnstile(0)
    with serving(fake_parts(engine)) as live:
        connection = connected(live)
        connection.sendall(asked(live))
        connection.shutdown(socket.SHUT_WR)
        wait_until(lambda: engine.live == 1, "the request running")
        connection.close()
        engine.gate.let(live.loop, 1)
        wait_until(lambda: live.get("/health").status == 200, "the server answering")
        engine.gate.let(live.loop)
        wait_until(lambda: engine.live == 0, "the request ended")


def test_an_answer_that_fits_the_kernels_buffer_is_not_kept_for_a_reader_that_has_stopped() -> None:
    """The whole answer is written at once, and the program waits for nothing. Only the kernel knows the reader's
    state."""
    engine = FakeEngine("a" * 900)
    with serving(patient(engine, stalled_s=0.3)) as live, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", live.port))
        connection.sendall(asked(live, n=50, max_tokens=900))
        poll = select.poll()
        poll.register(connection, 0)  # only errors are polled, because nothing is read
        found = poll.poll(WAIT_S * 1000)
        assert found and found[0][1] & (select.POLLERR | select.POLLHUP)
        assert engine.closed_early == 0


@pytest.mark.parametrize("waiting", [0, 1])
def test_where_others_wait_a_reader_that_has_stopped_gives_its_place_and_goes_on_later(waiting: int) -> None:
    engine = FakeEngine("a" * 900)
    engine.waiting = waiting
    engine.gate = gate = Turnstile(30_000)  # more pieces than the buffers of two sockets can take, and no whole answer
    with serving(patient(engine, stalled_s=3600.0, crowded_s=0.1)) as live, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", live.port))
        connection.settimeout(WAIT_S)
        connection.sendall(asked(live, "Connection: close\r\n", n=64, max_tokens=900, stream=True))
        if waiting:
            wait_until(lambda: engine.parked[:2] == [True, True], "the request rests, and is told so again")
        else:
            wait_until(lambda: engine.peak == 64, "the request running")
        gate.let(live.loop, 64 * 900)
        taken = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert taken.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") and engine.closed_early == 0
    assert engine.parked[-1:] == ([False] if waiting else [])


def test_a_reader_that_is_slow_keeps_its_request() -> None:
    engine = FakeEngine("a" * 900)
    engine.waiting = 1
    with serving(patient(engine, stalled_s=2.0, crowded_s=2.0)) as live, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", live.port))
        connection.settimeout(WAIT_S)
        connection.sendall(asked(live, "Connection: close\r\n", n=4, max_tokens=900, stream=True))
        taken = b"".join(iter(lambda: connection.recv(1500), b""))
    assert taken.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") and engine.closed_early == 0


def test_requests_of_connections_that_were_reset_are_not_read() -> None:
    """The server has no time for them until all are reset, as in a flood of them."""
    engine = FakeEngine()
    with serving(fake_parts(engine)) as live:
        flooded = threading.Event()
        live.loop.call_soon_threadsafe(flooded.wait)
        for _ in range(50):
            with connected(live) as connection:
                connection.sendall(asked(live))
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        flooded.set()
        assert live.complete().status == 200
        assert len(engine.prompts) == 1


def test_the_far_end_of_a_socket_in_the_file_system_is_known_too() -> None:
    async def look() -> None:
        near, far = socket.socketpair(socket.AF_UNIX)
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(asyncio.Protocol, near)
        end = FarEnd(transport)
        assert not end.untaken_bytes and not end.reads_nothing
        transport.write(b"unread")
        assert end.untaken_bytes > 0 and end.reads_nothing
        far.shutdown(socket.SHUT_WR)
        end.ask()
        assert not end.gone
        assert far.recv(100) == b"unread"
        assert not end.untaken_bytes and not end.reads_nothing
        far.close()
        assert end.gone
        transport.abort()

    asyncio.run(look())
