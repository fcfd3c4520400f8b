"""systemd's protocol with a socket of our own: what a service manager receives, and when."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from twostroke.assembly.settings.env import notify_address, process_environment, watchdog_s
from twostroke.server.process.notify import SystemdNotifier, Watch, message

SOURCE = Path(__file__).parents[3] / "src"


@contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(address.replace("@", "\0", 1))
        bound.settimeout(60)
        yield bound


@pytest.mark.parametrize("abstract", [False, True])
def test_states_arrive_as_lines(tmp_path: Path, abstract: bool) -> None:
    address = f"@twostroke-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with manager(address) as bound:
        SystemdNotifier(address).send(READY="1", STATUS="two\nlines")
        assert bound.recv(1000) == b"READY=1\nSTATUS=two lines"


@pytest.mark.parametrize("address", [None, "/nobody/listens/here", "@nobody-listens-here"])
def test_an_address_without_a_listener_is_no_error(address: str | None) -> None:
    SystemdNotifier(address).send(READY="1")


def test_a_full_socket_is_no_error(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with manager(address):
        for _ in range(10_000):
            SystemdNotifier(address).send(STATUS="x" * 1000)


class Heard:
    def __init__(self) -> None:
        self.states: list[dict[str, str]] = []

    def send(self, **states: str) -> None:
        self.states.append(states)


def test_beats_come_while_the_loop_goes_on_and_stopping_once() -> None:
    now, draining, heard = [0.0], [False], Heard()
    watch = Watch(heard, 2.0, lambda: draining[0], lambda: now[0])
    for _ in range(50):  # five seconds of a loop
        assert watch() is False
        now[0] += 0.1
    assert heard.states == [{"WATCHDOG": "1"}] * 3
    draining[0] = True
    now[0] = 5.0
    watch()
    watch()
    assert [state["STOPPING"] for state in heard.states if "STOPPING" in state] == ["1"]
    assert Watch(heard, None, lambda: False, lambda: now[0], lambda: True)() is True


def test_the_managers_wishes_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    assert notify_address() is None and watchdog_s() is None
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    assert notify_address() == "/run/notify" and watchdog_s() == 30.0
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    assert watchdog_s() == 30.0
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert watchdog_s() is None, "meant for another process"
    monkeypatch.setenv("WATCHDOG_USEC", "soon")
    assert watchdog_s() is None


def test_messages() -> None:
    assert message({"A": "1", "B": "x"}) == b"A=1\nB=x"


@pytest.mark.parametrize("supervised", [False, True])
def test_the_command_sends_ready_beats_and_stopping(tmp_path: Path, supervised: bool) -> None:
    address = str(tmp_path / "notify")
    environment = process_environment() | {
        "PYTHONPATH": str(SOURCE),
        "NOTIFY_SOCKET": address,
        "WATCHDOG_USEC": "300000",
    }
    command = [
        sys.executable,
        "-m",
        "twostroke",
        "serve",
        "spark",
        "--port",
        "0",
        "--threads",
        "1",
        "--kv-memory",
        "3MB",
    ]
    with manager(address) as bound:
        process = subprocess.Popen([*command, *(["--supervise"] if supervised else [])], env=environment)
        try:
            heard: list[bytes] = []
            while not any(b"READY=1" in each for each in heard):
                heard.append(bound.recv(1000))
            assert b"STATUS=serving" in heard[-1]
            before = len(heard)
            while not any(b"WATCHDOG=1" in each for each in heard[before:]):
                heard.append(bound.recv(1000))
            process.send_signal(signal.SIGTERM)
            while not any(b"STOPPING=1" in each for each in heard):
                heard.append(bound.recv(1000))
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
