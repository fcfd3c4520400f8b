"""How a server process ends: drained, cut short, or because its engine failed. Exit codes, statuses, no process
left."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.serve.harness import WAIT_S, Reply, wait_until
from twostroke.server.serve import SAME_SIGNAL_S

ROOT = Path(__file__).parents[3]
PROGRAM = """
import asyncio, select, sys
sys.path[:0] = [{root!r}, {source!r}]
from tests.serve.fakes import FakeEngine, Turnstile, fake_parts
from twostroke.cli.shared.command import clear_errors
from twostroke.server.serve import run
engine = FakeEngine("a" * 900)
engine.gate = Turnstile(1)
told = False
def tick():
    global told
    if not told and select.select([sys.stdin], [], [], 0)[0]:
        told = True
        if {die}:
            engine.alive = False
        else:
            engine.gate.let(asyncio.get_running_loop())
    return False
with clear_errors(False):
    run(fake_parts(engine, drain_s={drain_s}), "127.0.0.1", 0, lambda url: print(url, flush=True), tick)
"""


@contextmanager
def process(drain_s: float = 30.0, die: bool = False) -> Iterator[tuple[subprocess.Popen[str], int]]:
    code = PROGRAM.format(root=str(ROOT), source=str(ROOT / "src"), drain_s=drain_s, die=die)
    pipe = subprocess.PIPE
    made = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    try:
        assert made.stdout is not None
        yield made, int(made.stdout.readline().rpartition(":")[2])
    finally:
        made.kill()
        made.communicate()


def go_on(server: subprocess.Popen[str]) -> None:
    """Lets the engine, which waits after its first token, give the others; or lets it die, where it was made to."""
    assert server.stdin is not None
    server.stdin.write("go on\n")
    server.stdin.flush()


def begun(port: int, max_tokens: int) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """A stream that runs: its first token is here."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    body = {"model": "org/fake-model", "prompt": "x", "stream": True, "max_tokens": max_tokens}
    connection.request("POST", "/v1/completions", json.dumps(body))
    reply = connection.getresponse()
    reply.readline()
    return connection, reply


def get(port: int, path: str, body: str | None = None) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    connection.request("GET" if body is None else "POST", path, body)
    reply = connection.getresponse()
    found = Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
    connection.close()
    return found


def test_drain_in_flight_finish_new_are_refused_exit_code_is_0() -> None:
    with process() as (server, port):
        _, running = begun(port, 200)
        server.send_signal(signal.SIGTERM)
        wait_until(lambda: get(port, "/ready").status == 503, "the drain")
        refused = get(port, "/v1/completions", json.dumps({"model": "org/fake-model", "prompt": "x"}))
        assert (refused.status, refused.error["code"], refused.headers["retry-after"]) == (503, "draining", "1")
        assert get(port, "/live").status == 200
        go_on(server)
        rest = running.read()
        assert rest.endswith(b"data: [DONE]\n\n") and b'"finish_reason":"length"' in rest
        assert server.wait(WAIT_S) == 0


def test_what_does_not_finish_in_time_is_cut_and_the_exit_code_says_so() -> None:
    with process(drain_s=0.3) as (server, port):
        _, running = begun(port, 900)
        server.send_signal(signal.SIGTERM)
        with pytest.raises(http.client.IncompleteRead):
            running.read()
        assert server.wait(WAIT_S) == 6
        assert "1 requests were cut short" in server.communicate()[1]


def test_a_second_signal_cuts_at_once() -> None:
    with process(drain_s=3600.0) as (server, port):
        _, running = begun(port, 900)
        server.send_signal(signal.SIGTERM)
        wait_until(lambda: get(port, "/ready").status == 503, "the drain")
        time.sleep(2 * SAME_SIGNAL_S)  # two signals at once would count as one
        server.send_signal(signal.SIGTERM)
        with pytest.raises(http.client.IncompleteRead):
            running.read()
        assert server.wait(WAIT_S) in (0, 6)


def test_an_engine_that_ends_by_itself_ends_the_process_so_that_it_can_be_started_again() -> None:
    with process(die=True) as (server, port):
        kept = begun(port, 900)
        go_on(server)
        assert server.wait(WAIT_S) == 6
        kept[0].close()
        assert "engine ended by itself" in server.communicate()[1]
