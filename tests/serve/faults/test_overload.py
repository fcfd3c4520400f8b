"""The queue's bounds, each key's share, deadlines and the drain, over real sockets."""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.serve.fakes import EVERYTHING, FakeEngine, Turnstile, changed, fake_parts
from tests.serve.harness import WAIT_S, Live, Reply, is_framed, reader_that_does_not_read, serving, wait_until
from twostroke.server.admission import Limits
from twostroke.server.errors import HttpProblem
from twostroke.server.gate.door import Door, DoorRules
from twostroke.server.gate.drain import Drain
from twostroke.server.visit import Visit


class Held:
    """An engine that writes nothing until `release`, in a server with these rules."""

    def __init__(self, wait_s: float = 7.5, **rules: Any) -> None:
        self.engine = FakeEngine()
        self.engine.gate = self._gate = Turnstile()
        self.asked: list[tuple[int, int]] = []

        def waited(requests: int, tokens: int) -> float:
            self.asked.append((requests, tokens))
            return wait_s

        self.door = Door(DoorRules(**rules), waited)
        self.parts = fake_parts(self.engine, door=self.door)

    def release(self, live: Live, tokens: int = EVERYTHING) -> None:
        self._gate.let(live.loop, tokens)


def test_a_full_queue_is_503_with_the_forecast_and_all_requests_inside_are_answered() -> None:
    held = Held(queued_requests=3)
    with serving(held.parts) as live, ThreadPoolExecutor(4) as pool:
        inside = [pool.submit(live.complete, max_tokens=4) for _ in range(3)]
        wait_until(lambda: held.door.queued_requests == 3, "three wait")
        refused = live.complete(max_tokens=4)
        assert (refused.status, refused.error["code"]) == (503, "queue_full")
        assert refused.headers["retry-after"] == "8" and refused.headers["retry-after-ms"] == "7500"
        assert held.asked == [(1, 0)]
        assert len(held.engine.prompts) == 3, "a refused request reaches no engine"
        held.release(live)
        assert [reply.result().status for reply in inside] == [200] * 3
        assert live.complete(max_tokens=4).status == 200
    assert (held.door.queued_requests, held.door.queued_tokens, held.door.in_flight) == (0, 0, 0)


def test_waiting_prompt_tokens_are_bounded_but_one_long_prompt_alone_is_served() -> None:
    held = Held(queued_tokens=100)
    with serving(held.parts) as live, ThreadPoolExecutor(4) as pool:
        alone = pool.submit(live.complete, prompt="x" * 300)
        wait_until(lambda: held.door.queued_tokens == 300, "the long one waits")
        refused = live.complete(prompt="y" * 20)
        assert (refused.status, refused.error["code"]) == (503, "queue_full")
        assert "prompt tokens" in refused.error["message"] and held.asked == [(0, 220)]
        held.release(live)
        assert alone.result().status == 200
        assert live.complete(prompt="y" * 20).status == 200


def test_completions_count_and_leave_the_queue_with_the_first_token() -> None:
    held = Held(queued_requests=5)
    with serving(held.parts) as live, ThreadPoolExecutor(4) as pool:
        first = pool.submit(live.complete, n=4, max_tokens=12, prompt="abcdef")
        wait_until(lambda: held.door.queued_requests == 4, "four completions wait")
        assert live.complete(n=2).status == 503
        held.release(live, 4)
        wait_until(lambda: held.door.queued_requests == 0 and held.door.in_flight == 1, "answered but not over")
        second = pool.submit(live.complete, n=2, max_tokens=1)
        wait_until(lambda: held.door.queued_requests == 2 and held.door.in_flight == 2, "there is room again")
        held.release(live)
        assert second.result().status == 200
        assert first.result().status == 200


def test_each_key_has_its_own_share_of_requests() -> None:
    held = Held(key_requests=2)
    parts = fake_parts(held.engine, door=held.door, api_key="ann, bob")

    def ask(live: Live, key: str) -> Reply:
        return live.post("/v1/completions", {"model": live.model, "prompt": "x"}, x_api_key=key)

    with serving(parts) as live, ThreadPoolExecutor(8) as pool:
        inside: list[Future[Reply]] = [pool.submit(ask, live, "ann") for _ in range(2)]
        wait_until(lambda: held.door.in_flight == 2, "two of ann's run")
        refused = ask(live, "ann")
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert refused.error["type"] == "rate_limit_error" and refused.headers["retry-after"] == "8"
        inside += [pool.submit(ask, live, "bob") for _ in range(2)]
        wait_until(lambda: held.door.in_flight == 4, "bob is let in beside ann")
        assert ask(live, "carol").status == 401
        held.release(live)
        assert [reply.result().status for reply in inside] == [200] * 4
        assert ask(live, "ann").status == 200


def test_refused_calls_are_told_to_come_one_after_the_other() -> None:
    """With one time for all of them, one would find room and the others would be refused again."""
    now = [0.0]
    door = Door(DoorRules(queued_requests=1, key_requests=1), lambda requests, _: 2.0 * requests, clock=lambda: now[0])
    inside = door.enter(Visit("ann"), 1, 5)

    def told(sender: str) -> str:
        with pytest.raises(HttpProblem) as caught:
            door.enter(Visit(sender), 1, 5)
        return caught.value.problem.headers["retry-after-ms"]

    assert [told("bob") for _ in range(3)] == ["2000", "4000", "6000"]
    assert [told("ann") for _ in range(2)] == ["2000", "4000"], "the limit of a key has an order of its own"
    now[0] = 4.5
    assert told("bob") == "4000", "two times have passed, and one call is still to come"
    now[0] = 100.0
    assert told("bob") == "2000"
    inside.leave(0)
    door.enter(Visit("bob"), 1, 5).leave(0)


def test_a_place_of_a_key_is_free_when_running_requests_have_ended() -> None:
    """Room in the batch does not help a key that has all of its requests."""
    door = Door(DoorRules(key_requests=1), lambda *_: 0.0, lambda count: 3.0 * count)
    door.enter(Visit("ann"), 1, 5)
    with pytest.raises(HttpProblem) as caught:
        door.enter(Visit("ann"), 1, 5)
    assert caught.value.problem.headers["retry-after-ms"] == "3000"


def test_a_keys_tokens_come_back_at_their_rate_and_retry_after_is_when() -> None:
    now = [0.0]
    door = Door(DoorRules(key_tokens=600), clock=lambda: now[0])
    ticket = door.enter(Visit("ann"), 1, 500)
    ticket.leave(200)  # 100 tokens in debt
    door.enter(Visit("bob"), 1, 600).leave(0)
    with pytest.raises(HttpProblem) as caught:
        door.enter(Visit("ann"), 1, 100)
    problem = caught.value.problem
    assert (problem.status, problem.headers["retry-after-ms"]) == (429, "20000")
    now[0] = 19.9
    with pytest.raises(HttpProblem):
        door.enter(Visit("ann"), 1, 100)
    now[0] = 20.0 + 1e-6
    door.enter(Visit("ann"), 1, 100).leave(0)
    now[0] = 1000.0
    door.enter(Visit("ann"), 1, 10_000).leave(0)  # more than a minute's tokens are let in when the bucket is full
    assert door.refusals == {"rate_limit_exceeded": 2}


def test_a_refusal_changes_nothing_and_a_ticket_is_given_back_once() -> None:
    door = Door(DoorRules(queued_requests=2, key_requests=2))
    ticket = door.enter(Visit(), 2, 10)
    before = (door.queued_requests, door.queued_tokens, door.in_flight)
    with pytest.raises(HttpProblem):
        door.enter(Visit("ann"), 1, 5)
    assert (door.queued_requests, door.queued_tokens, door.in_flight) == before == (2, 10, 1)
    ticket.leave(1)
    ticket.leave(1)
    ticket.answered()
    assert (door.queued_requests, door.queued_tokens, door.in_flight) == (0, 0, 0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_deadline_ends_a_request_before_its_first_byte(stream: bool) -> None:
    held = Held()
    with serving(held.parts) as live:
        reply = live.post(
            "/v1/completions",
            {"model": live.model, "prompt": "x", "stream": stream},
            x_request_timeout_ms="150",
        )
        assert (reply.status, reply.error["code"]) == (504, "deadline_exceeded")
        wait_until(lambda: held.engine.live == 0 and held.door.in_flight == 0, "nothing left")


def test_a_deadline_in_the_middle_of_a_stream_is_an_error_event() -> None:
    for deadline_s in (0.4, 4.0, 40.0):  # on a machine that stood still, it may pass before the first byte
        engine = FakeEngine("a" * 400)
        engine.gate = Turnstile(1)
        with serving(fake_parts(engine, limits=Limits(deadline_s=deadline_s))) as live:
            reply = live.complete(stream=True, max_tokens=400)
            wait_until(lambda engine=engine: engine.live == 0, "nothing left")  # type: ignore[misc]
        if reply.status == 200:
            break
    assert reply.status == 200
    assert reply.events[-1] == "[DONE]" and reply.events[-2]["error"]["code"] == "deadline_exceeded"
    assert "".join(event["choices"][0]["text"] for event in reply.events[:-2]) == "a"
    assert engine.closed_early == 1


def test_the_servers_own_deadline_is_the_longest() -> None:
    held = Held()
    with serving(changed(held.parts, limits=Limits(deadline_s=0.4))) as live:
        body = {"model": live.model, "prompt": "x", "max_tokens": 400}
        assert live.post("/v1/completions", body, x_request_timeout_ms="600000").status == 504


def test_a_deadline_frees_the_engine_of_a_client_that_does_not_read() -> None:
    engine = FakeEngine("a" * 900)
    engine.gate = Turnstile(30_000)  # more than the buffers of two sockets can take, and no whole answer
    limits = Limits(deadline_s=0.5, stalled_s=600.0)
    with serving(fake_parts(engine, limits=limits)) as live, reader_that_does_not_read(live):
        wait_until(lambda: engine.peak == 100 and engine.live == 0, "the request over")
        assert engine.closed_early == 1


@pytest.mark.parametrize("sent", ["0", "-1", "soon", "1e3", "9" * 13, ""])
def test_a_deadline_without_sense_is_400(live: Live, sent: str) -> None:
    body = {"model": live.model, "prompt": "x"}
    reply = live.post("/v1/completions", body, x_request_timeout_ms=sent)
    assert (reply.status, reply.error["code"]) == (400, "invalid_deadline")


def test_draining_refuses_new_requests_and_says_so_to_the_load_balancer() -> None:
    held = Held()
    with serving(held.parts) as live, ThreadPoolExecutor(2) as pool:
        running = pool.submit(live.complete)
        wait_until(lambda: held.door.in_flight == 1, "one runs")
        held.door.draining = True
        refused = live.complete()
        assert (refused.status, refused.error["code"]) == (503, "draining")
        assert refused.headers["connection"] == "close" and refused.headers["retry-after"] == "1"
        assert (live.get("/ready").status, live.get("/health").status, live.get("/live").status) == (503, 503, 200)
        held.release(live)
        assert running.result().status == 200


def test_a_drain_is_over_when_nothing_runs_or_when_its_time_is_up() -> None:
    now = [0.0]
    door = Door(clock=lambda: now[0])
    drain = Drain(door, 10.0, door.clock)
    ticket = door.enter(Visit(), 1, 1)
    assert not drain.over
    drain.begin()
    assert drain.begun and not drain.over and drain.cut == 1
    now[0] = 9.0
    drain.begin()
    now[0] = 10.0
    assert drain.over and drain.cut == 1
    ticket.leave(0)
    assert drain.over and drain.cut == 0


def test_a_head_that_does_not_come_ends_the_connection() -> None:
    with serving(fake_parts(limits=Limits(header_s=0.2))) as live:
        for sent in (b"", b"GET /health HTTP/1.1\r\nHost: lo"):
            with socket.create_connection(("127.0.0.1", live.port), timeout=WAIT_S) as connection:
                assert ended_after(connection, sent) == b""
        whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for _ in range(20):  # on a machine that stood still, the time may be over before the head is sent
            with socket.create_connection(("127.0.0.1", live.port), timeout=WAIT_S) as connection:
                if answer_after(connection, whole, b'{"status":"ok"}'):
                    assert ended_after(connection, whole[:20]) == b"", "a second head that stops"
                    return
        raise AssertionError("no head came in time")


def answer_after(connection: socket.socket, sent: bytes, end: bytes) -> bytes:
    """The bytes up to `end`, or until the other side closes."""
    got = b""
    with contextlib.suppress(ConnectionError):  # it may have closed before this was sent
        connection.sendall(sent)
        while not got.endswith(end) and (piece := connection.recv(4096)):
            got += piece
    return got


def ended_after(connection: socket.socket, sent: bytes) -> bytes:
    """The bytes until the other side closes."""
    return answer_after(connection, sent, b"the end of no answer")


@pytest.mark.parametrize(
    "garbage",
    [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"a" * 70_000],
)
def test_what_is_no_http_gets_a_coded_400(live: Live, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", live.port), timeout=WAIT_S) as connection:
        got = ended_after(connection, garbage)
    assert got.startswith(b"HTTP/1.1 400") and b"invalid_http" in got
    assert is_framed(got)
    assert live.get("/health").status == 200


@pytest.mark.parametrize("headers", [{"x-long": "y" * 70_000}, {f"x-{i}": "y" for i in range(120)}])
def test_headers_are_bounded_however_they_come(live: Live, headers: dict[str, str]) -> None:
    reply = live.call("GET", "/health", headers=headers)
    assert reply.status == 431 and reply.error["code"] in ("headers_too_large", "too_many_headers")
    assert live.get("/health").status == 200


def test_a_body_that_comes_a_byte_at_a_time_has_an_end() -> None:
    limits = Limits(body_s=0.3)
    with serving(fake_parts(limits=limits)) as live:
        connection = socket.create_connection(("127.0.0.1", live.port), timeout=PATIENCE_S)
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
        got = b""
        while not got:
            connection.sendall(b" ")
            connection.settimeout(0.02)
            with contextlib.suppress(TimeoutError):
                got = connection.recv(1000)
        assert got.startswith(b"HTTP/1.1 408")
        connection.close()
