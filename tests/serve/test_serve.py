"""Binding, announcing and stopping, in a process of its own where signals matter."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.patience import PATIENCE_S
from tests.serve.fakes import fake_parts
from tests.serve.harness import WAIT_S, wait_until
from twostroke.cli.main import main as cli
from twostroke.server.process.listening import begin_listening, bind, reserved
from twostroke.server.serve import SAME_SIGNAL_S, make_server, run, url_of
from twostroke.types.errors import ConfigError

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
sys.path[:0] = [{root!r}, {source!r}]
from tests.serve.fakes import FakeEngine, fake_parts
from twostroke.server.serve import run

class Engine(FakeEngine):
    async def stop(self):
        await super().stop()
        print("engine stopped", flush=True)

engine = Engine("a" * 200)
engine.token_s = 0.01
run(fake_parts(engine), "127.0.0.1", 0, lambda url: print(url, flush=True))
print("ended", flush=True)
"""


@contextmanager
def _process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    code = PROGRAM.format(root=str(ROOT), source=str(ROOT / "src"))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_and_requests_in_flight_get_their_answer(kind: signal.Signals) -> None:
    with _process() as (process, url):
        port = int(url.rpartition(":")[2])
        assert url == f"http://127.0.0.1:{port}"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        body = {"model": "org/fake-model", "prompt": "x", "stream": True, "max_tokens": 60}
        connection.request("POST", "/v1/completions", json.dumps(body))
        reply = connection.getresponse()
        reply.readline()
        process.send_signal(kind)
        rest = reply.read()
        assert rest.endswith(b"data: [DONE]\n\n")
        assert b'"finish_reason":"length"' in rest
        output, _ = process.communicate(timeout=WAIT_S)
        assert output.split("\n") == ["engine stopped", "ended", ""]
        assert process.returncode == 0
        with pytest.raises(OSError):
            urllib.request.urlopen(url + "/health", timeout=PATIENCE_S)


def test_two_signals_end_it_at_once() -> None:
    with _process() as (process, url):
        connection = http.client.HTTPConnection("127.0.0.1", int(url.rpartition(":")[2]), timeout=PATIENCE_S)
        body = {"model": "org/fake-model", "prompt": "x" * 3, "stream": True, "max_tokens": 200, "n": 100}
        connection.request("POST", "/v1/completions", json.dumps(body))
        connection.getresponse().readline()
        process.send_signal(signal.SIGINT)
        wait_until(lambda: _status(url + "/ready") == 503, "the drain")
        time.sleep(2 * SAME_SIGNAL_S)  # two signals at once would count as one
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=WAIT_S)
        assert "engine stopped" in output
        assert process.returncode == 0


def test_streams_do_not_wait_for_acknowledgements() -> None:
    found: list[int] = []

    class Watch(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            found.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    async def main() -> None:
        with bind("127.0.0.1", 0) as listener:
            server = await asyncio.get_running_loop().create_server(Watch, sock=listener)
            _, writer = await asyncio.open_connection(*listener.getsockname())
            while not found:
                await asyncio.sleep(0.001)
            writer.close()
            server.close()

    asyncio.run(main())
    assert found == [1]


def test_a_taken_port_is_a_clear_error() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            run(fake_parts(), "127.0.0.1", port, lambda _url: pytest.fail("announced"))
    assert str(port) in caught.value.what
    assert caught.value.why
    assert "--port 0" in caught.value.fix


def test_a_taken_port_is_reported_before_the_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twostroke.server.build.build_server", lambda *_: pytest.fail("the model was loaded"))
    with bind("127.0.0.1", 0) as taken:
        done = CliRunner().invoke(cli, ["serve", "spark", "--port", str(taken.getsockname()[1])])
    assert done.exit_code == 2 and "it is taken" in done.stderr


def test_a_reserved_port_refuses_clients_until_it_listens() -> None:
    with reserved("127.0.0.1", 0) as held:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(held.getsockname())
        begin_listening(held)
        socket.create_connection(held.getsockname()).close()


@pytest.mark.parametrize(
    "host", [pytest.param("no.such.host.invalid", marks=pytest.mark.slow), "203.0.113.7", "x" * 300]
)
def test_an_address_of_another_machine_is_a_clear_error(host: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(fake_parts(api_key="k"), host, 0, lambda _url: pytest.fail("announced"))
    assert "--host" in caught.value.fix


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "localhost.example"])
def test_every_client_without_a_key_is_refused(host: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(fake_parts(), host, 0, lambda _url: pytest.fail("announced"))
    assert "--api-key" in caught.value.fix


def test_a_name_of_both_kinds_is_bound_at_its_ipv4_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(*_: object, **__: object) -> list[object]:
        end = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(socket.AF_INET6, *end, ("::1", 0, 0, 0)), (socket.AF_INET, *end, ("127.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    with bind("localhost", 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_an_idle_connection_outlives_those_of_clients() -> None:
    with bind("127.0.0.1", 0) as listener:
        server = make_server(fake_parts(), listener, lambda _: None)
    assert server.config.timeout_keep_alive > 120  # seconds; Go closes after 90, Caddy after 120


def test_urls() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
    if socket.has_ipv6:
        try:
            listener = bind("::1", 0)
        except ConfigError:
            return  # this machine has no IPv6 loopback
        with listener:
            assert url_of(listener).startswith("http://[::1]:")
