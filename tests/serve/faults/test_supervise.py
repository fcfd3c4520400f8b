"""A worker that crashes is started again, the socket stays, and no process is left. Processes and sockets are real."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.patience import PATIENCE_S
from tests.serve.harness import WAIT_S, is_framed, wait_until
from twostroke.assembly.settings.env import process_environment
from twostroke.server.process.listening import bind
from twostroke.server.process.stand_in import StandIn, reply
from twostroke.server.process.supervise import MOST_DELAY_S, STEADY_S, Backoff, how

SOURCE = Path(__file__).parents[3] / "src"


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def gone(pid: int) -> bool:
    """Whether it has ended. A zombie that another process must reap counts as ended."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


class Supervised:
    """`twostroke serve spark --supervise`, or the same supervisor with a worker of our own."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, errors: Path) -> None:
        self.process, self.port, self.errors = process, port, errors

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def worker(self) -> int:
        return children(self.process.pid)[0]

    def get(self, path: str) -> tuple[int, dict[str, str], Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, {k.lower(): v for k, v in reply.getheaders()}, json.loads(reply.read())
        finally:
            connection.close()

    def ready(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.get("/ready")[0] == 200
        return False


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[Supervised]:
    """A command that prints its address."""
    errors = folder / "errors"
    environment = process_environment() | {"PYTHONPATH": str(SOURCE)}
    with errors.open("wb") as log:
        process = subprocess.Popen(command, env=environment, stderr=log, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        told = (re.search(rb"127\.0\.0\.1:(\d+)", line) for line in process.stdout)
        yield Supervised(process, int(next(found[1] for found in told if found)), errors)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Supervised]:
    flags = ["--supervise", "--port", "0", "--threads", "1", "--kv-memory", "8MB"]
    with started([sys.executable, "-m", "twostroke", "serve", "spark", *flags], tmp_path) as server:
        wait_until(server.ready, "the first worker")
        yield server
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(WAIT_S)


def ask(url: str, retries: int) -> Any:
    with OpenAI(base_url=url + "/v1", api_key="none", max_retries=retries) as client:
        return client.completions.create(
            model="spark",
            prompt="Once",
            max_tokens=900,
            seed=1,
            temperature=0,
            extra_body={"ignore_eos": True},
        )


def test_a_crash_in_native_code_costs_the_requests_that_run_and_nothing_else(served: Supervised) -> None:
    with OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0) as client, ThreadPoolExecutor(2) as pool:
        body: dict[str, Any] = {"model": "spark", "prompt": "Once", "seed": 1, "temperature": 0}
        before = client.completions.create(**body, max_tokens=20)
        # So many that they run for many seconds on any machine.
        much: dict[str, Any] = {"n": 128, "max_tokens": 900, "extra_body": {"ignore_eos": True}}
        stream = client.completions.create(**body, **much, stream=True)
        next(iter(stream))
        retried = pool.submit(ask, served.url, retries=12)
        first = served.worker
        time.sleep(0.05)
        os.kill(first, signal.SIGSEGV)
        ended = 0
        with pytest.raises(openai.APIConnectionError):
            for chunk in stream:
                ended += sum(choice.finish_reason is not None for choice in chunk.choices)
        assert ended < 128, "no false end"
        wait_until(served.ready, "the second worker")
        assert served.worker != first and served.process.poll() is None
        assert retried.result().choices[0].finish_reason == "length", "the client's own retries get through"
        after = client.completions.create(**body, max_tokens=20)
        assert after.choices == before.choices
    assert b"killed by SIGSEGV; restart 1" in served.errors.read_bytes()


def test_sigterm_drains_the_worker_and_leaves_no_process(served: Supervised) -> None:
    worker = served.worker
    with ThreadPoolExecutor(1) as pool:
        for _ in range(50):
            running = pool.submit(ask, served.url, retries=0)
            # A machine that stands still sees nothing of a short request.
            wait_until(lambda asked=running: _runs(served) or asked.done(), "a request that runs")  # type: ignore[misc]
            if not running.done():
                break
        served.process.send_signal(signal.SIGTERM)
        assert running.result().choices[0].finish_reason == "length", "what runs is finished"
    assert served.process.wait(WAIT_S) == 0
    assert gone(worker)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S)


def test_a_supervisor_that_is_killed_leaves_no_worker(served: Supervised) -> None:
    worker = served.worker
    served.process.kill()
    served.process.wait()
    wait_until(lambda: gone(worker), "the worker's own end")


def _runs(served: Supervised) -> bool:
    return "twostroke_calls_in_flight 1.0" in _metrics(served)


def _metrics(served: Supervised) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=WAIT_S)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


PROGRAM = """
import asyncio, os, sys
from twostroke.server.process.notify import SystemdNotifier
from twostroke.server.process.listening import bind
from twostroke.server.process.supervise import Supervisor
import twostroke.server.process.supervise as room
room.FIRST_DELAY_S = float(sys.argv[3])
worker = open(sys.argv[1]).read()
def command(listening, line, notes):
    return [sys.executable, "-c", worker, str(listening), str(line), str(notes)]
def say(text):
    print(text, file=sys.stderr, flush=True)
with bind("127.0.0.1", 0) as listener:
    print("127.0.0.1:" + str(listener.getsockname()[1]), flush=True)
    tell = SystemdNotifier(None)
    supervisor = Supervisor(command, listener, dict(os.environ), say, tell, silence_s=float(sys.argv[2]))
    sys.exit(asyncio.run(supervisor.run()))
"""


@contextmanager
def with_worker(worker: str, folder: Path, silence_s: float = 0.4, first_delay_s: float = 0.01) -> Iterator[Supervised]:
    (folder / "worker.py").write_text(worker)
    program = [sys.executable, "-c", PROGRAM, str(folder / "worker.py"), str(silence_s), str(first_delay_s)]
    with started(program, folder) as server:
        yield server


def test_while_no_worker_runs_every_request_gets_503_and_the_supervisor_goes_on(tmp_path: Path) -> None:
    with with_worker("import time; time.sleep(600)", tmp_path) as server:  # a worker that is never ready
        wait_until(lambda: bool(children(server.process.pid)), "the worker")
        for _ in range(3):
            status, headers, body = server.get("/v1/models")
            assert (status, body["error"]["code"]) == (503, "engine_restarting")
            assert int(headers["retry-after"]) >= 1 and headers["connection"] == "close"
        assert server.get("/ready")[0] == 503
        assert server.get("/live")[0] == 200, "a restart of the supervisor would not help"
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as silent:
            assert server.get("/live")[0] == 200
            assert silent.recv(100) == b"", "a client that sends nothing is not waited for"
        worker = children(server.process.pid)[0]
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(WAIT_S) == 128 + signal.SIGTERM
        assert gone(worker)


@pytest.mark.parametrize(
    ("target", "alive"),
    [("/live", True), ("//live/", True), ("http://localhost/live", True), ("/llm/live?a", True), ("/lively", False)],
)
def test_a_probe_in_any_form_hears_that_the_supervisor_lives(target: str, alive: bool) -> None:
    """A probe that gets 503 would have it restarted."""
    assert reply(f"GET {target} HTTP/1.0\r\n\r\n".encode(), 1.0).startswith(b"HTTP/1.1 200") == alive
    assert reply(f"POST {target} HTTP/1.1\r\n\r\n".encode(), 1.0).startswith(b"HTTP/1.1 503")
    assert is_framed(reply(f"POST {target} HTTP/1.1\r\n\r\n".encode(), 1.0))
    asked, headless = (reply(f"{way} {target} HTTP/1.1\r\n\r\n".encode(), 1.0) for way in ("GET", "HEAD"))
    assert is_framed(asked) and headless == asked.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def test_no_connection_is_lost_when_a_worker_takes_over() -> None:
    """The change comes as a message on a socket, so that it may come in the same turn of the loop as a connection."""
    changes = 300
    asked: list[int] = []
    over = threading.Event()

    def ask_again_and_again(port: int) -> None:
        while not over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
            connection.request("GET", "/ready")
            asked.append(connection.getresponse().status)
            connection.close()

    def tell_when_one_is_answered(line: socket.socket) -> None:
        while not over.is_set():
            told = len(asked)
            while len(asked) == told and not over.wait(0.001):
                pass
            line.send(b"x")

    async def main(listener: socket.socket) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs, ThreadPoolExecutor(4) as pool:
            ours.setblocking(False)
            clients = [pool.submit(ask_again_and_again, listener.getsockname()[1]) for _ in range(3)]
            clients.append(pool.submit(tell_when_one_is_answered, theirs))
            try:
                for _ in range(changes):
                    async with StandIn(listener, lambda: 1.0), asyncio.timeout(WAIT_S):
                        await asyncio.get_running_loop().sock_recv(ours, 1)
            finally:
                over.set()
            async with StandIn(listener, lambda: 1.0):
                await asyncio.gather(*map(asyncio.wrap_future, clients))

    with bind("127.0.0.1", 0) as listener:
        asyncio.run(main(listener))
    assert len(asked) >= changes // 4 and set(asked) == {503}


@pytest.mark.parametrize("code", [2, 3, 4])
def test_a_worker_that_could_never_start_is_not_tried_again(tmp_path: Path, code: int) -> None:
    with with_worker(f"import sys; sys.exit({code})", tmp_path) as server:
        assert server.process.wait(WAIT_S) == code
        assert b"restart" not in server.errors.read_bytes()


def test_workers_that_die_before_they_are_ready_are_given_up(tmp_path: Path) -> None:
    with with_worker("import os; os.abort()", tmp_path) as server:
        assert server.process.wait(WAIT_S) == 6
        said = server.errors.read_bytes().decode()
        assert said.count("killed by SIGABRT; restart") == 4 and "giving up" in said


def test_a_worker_that_hangs_is_killed_and_replaced(tmp_path: Path) -> None:
    worker = f"""
import os, socket, sys, time
marker = {str(tmp_path / "hung")!r}
line = socket.socket(fileno=int(sys.argv[2]))
line.send(b"READY=1\\n")
if not os.path.exists(marker):
    open(marker, "w").close()
    time.sleep(600)
sys.exit(0)
"""
    with with_worker(worker, tmp_path) as server:
        assert server.process.wait(WAIT_S) == 0
        said = server.errors.read_bytes().decode()
        assert "has said nothing" in said and "restart 1" in said


def test_a_signal_between_two_workers_ends_it(tmp_path: Path) -> None:
    with with_worker("import os; os.abort()", tmp_path, first_delay_s=MOST_DELAY_S) as server:
        wait_until(lambda: b"restart 1 in 30 s" in server.errors.read_bytes(), "a pause of half a minute")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(WAIT_S) == 0
        wait_until(lambda: not children(server.process.pid), "no worker")


def test_delays_double_up_to_a_bound_and_start_again_after_a_worker_that_lasted() -> None:
    backoff = Backoff()
    delays = [backoff.after(1.0) for _ in range(12)]
    assert delays[:4] == [0.25, 0.5, 1.0, 2.0] and delays[-1] == MOST_DELAY_S
    assert backoff.after(STEADY_S) == 0.25


def test_ends_in_words() -> None:
    assert (how(1), how(-11), how(-200)) == ("exit code 1", "killed by SIGSEGV", "killed by signal 200")
