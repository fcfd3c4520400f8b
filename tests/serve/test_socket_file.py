"""A server on a socket of the file system: its permissions, its end, and files that exist already."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.serve.harness import WAIT_S, wait_until
from twostroke.assembly.settings.config import resolve_server
from twostroke.assembly.settings.resolver import Resolver, collect
from twostroke.cli.server.running_server import RunningServer
from twostroke.server.serve import url_of
from twostroke.server.socket_file import socket_file
from twostroke.types.errors import ConfigError


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=WAIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(str(self._path))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_the_file_has_its_permissions_and_is_removed(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "t.sock"
    with socket_file(str(path), mode) as listener:
        assert mode_of(path) == mode and url_of(listener) == f"unix:{path}"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    assert not path.exists()


def test_what_a_killed_server_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "t.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.is_socket()
    with socket_file(str(path), 0o600), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def a_server(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


def test_what_is_in_use_or_no_socket_stays(tmp_path: Path) -> None:
    taken, text = tmp_path / "taken.sock", tmp_path / "text"
    text.write_text("kept")
    (tmp_path / "link").symlink_to(text)
    with a_server(taken):
        cases: list[tuple[Path, str]] = [
            (taken, "taken"),
            (text, "no socket"),
            (tmp_path / "link", "no socket"),
            (tmp_path, "no socket"),
            (tmp_path / "none" / "t.sock", "Cannot listen"),
            (tmp_path / ("x" * 108), "too long"),
        ]
        for path, words in cases:
            with pytest.raises(ConfigError, match=words) as caught, socket_file(str(path), 0o600):
                pytest.fail("it listens")
            assert caught.value.why and caught.value.fix
        assert taken.is_socket() and text.read_text() == "kept"


def test_a_place_that_another_server_took_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "t.sock"
    with socket_file(str(path), 0o600):
        path.unlink()
        other = a_server(path)
    assert path.is_socket()
    other.close()


def test_one_place_at_a_time() -> None:
    def resolved(**asked: str) -> object:
        resolver = Resolver(collect(asked, {}))
        resolve_server(resolver, "m")
        return resolver.resolved()["uds"], resolver.resolved()["host"]

    assert resolved(uds="/run/t.sock") == ("/run/t.sock", "127.0.0.1")
    assert resolved(host="/run/t.sock") == resolved(host="unix:/run/t.sock") == ("/run/t.sock", "127.0.0.1")
    for other in ({"port": "80"}, {"host": "127.0.0.1"}):
        with pytest.raises(ConfigError, match="--uds"):
            resolved(uds="/run/t.sock", **other)


def ready(path: Path) -> bool:
    connection = UnixConnection(path)
    connection.request("GET", "/ready")
    status = connection.getresponse().status
    connection.close()
    return status == 200


@contextmanager
def on_a_socket(path: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "twostroke", "serve", "spark", "--uds", str(path), "--threads", "1", *words]
    environment = {**os.environ, "TWOSTROKE_CACHE": str(path.parent / "cache"), "TWOSTROKE_KV_MEMORY": "20MB"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(WAIT_S)


def said(process: subprocess.Popen[str], found: Callable[[str], bool]) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if found(line):
            return "".join(lines)
    raise AssertionError("".join(lines))


@pytest.mark.parametrize("words", [(), ("--supervise",), ("--replicas", "1")], ids=["alone", "supervised", "front"])
def test_a_server_streams_on_a_socket_of_the_file_system(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = tmp_path / "t.sock"
    with on_a_socket(path, "--uds-mode", "660", "--served-name", "one,two", *words) as process:
        text = said(process, lambda line: "curl" in line)
        assert f"unix:{path}" in text and f"--unix-socket {path}" in text
        assert mode_of(path) == 0o660
        wait_until(lambda: ready(path), "the worker")  # a supervisor answers until it knows about the worker
        for name in ("one", "two"):
            connection = UnixConnection(path)
            asked = {"model": name, "stream": True, "max_tokens": 3, "messages": [{"role": "user", "content": "hi"}]}
            connection.request("POST", "/v1/chat/completions", json.dumps(asked))
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
            assert answer.read().endswith(b"data: [DONE]\n\n")
            connection.close()
        with RunningServer(f"unix:{path}", None, WAIT_S).open("/v1/engine/about") as got:
            assert json.load(got)["model"] == "one"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    assert not path.exists()
