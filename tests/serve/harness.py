"""A real server on a real socket, in a thread of its own, and a simple client for it."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn.server

from twostroke.runner.runner import ModelRunner
from twostroke.server.parts import ServerParts
from twostroke.server.process.listening import bind
from twostroke.server.serve import make_server
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult

WAIT_S = 60.0
"""Long enough for a busy machine. Only a test that fails waits so long."""
MOST_REST_S = 0.02


class Hurried:
    """asyncio with short rests."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(delay: float) -> None:
        await asyncio.sleep(min(delay, MOST_REST_S))


# uvicorn checks ten times a second whether it must end, and then rests as long again. Tests end hundreds of servers.
uvicorn.server.asyncio = Hurried()  # type: ignore[assignment]


def is_framed(answer: bytes) -> bool:
    """Whether all bytes of a connection are one response whose Content-Length is the length of its body. A client of a
    library sees neither a byte too many nor, on a connection that closes, a byte too few."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return [int(length) for length in lengths] == [len(body)]


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"] and error["type"]
        return error

    @property
    def events(self) -> list[Any]:
        """The data events, with [DONE] as text and without comments."""
        blocks = [b for b in self.body.decode().split("\n\n") if b and not b.startswith(":")]
        assert all(b.startswith("data: ") and "\n" not in b for b in blocks), blocks
        return ["[DONE]" if b == "data: [DONE]" else json.loads(b[6:]) for b in blocks]


@dataclass(frozen=True, slots=True)
class Live:
    url: str
    parts: ServerParts
    loop: asyncio.AbstractEventLoop

    @property
    def model(self) -> str:
        return self.parts.serving.served_name

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, headers or {})
            got = connection.getresponse()
            return Reply(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.call("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.call("POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()})

    def chat(self, **fields: Any) -> Reply:
        asked = {"model": self.model, "messages": [{"role": "user", "content": "hi"}], **fields}
        return self.post("/v1/chat/completions", asked)

    def complete(self, **fields: Any) -> Reply:
        return self.post("/v1/completions", {"model": self.model, "prompt": "hi", **fields})


@contextmanager
def serving(parts: ServerParts) -> Iterator[Live]:
    """Serves until the block ends. Fails when the server does not end by itself then."""
    listener = bind("127.0.0.1", 0)
    ready = threading.Event()
    shared: dict[str, Any] = {}

    def announce(url: str) -> None:
        shared["url"] = url
        ready.set()

    async def main() -> None:
        await parts.serving.engine.start()
        try:
            shared["server"] = make_server(parts, listener, announce)
            shared["loop"] = asyncio.get_running_loop()
            await shared["server"].serve(sockets=[listener])
        finally:
            await parts.serving.engine.stop()

    def body() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            shared["failed"] = error
            ready.set()

    thread = threading.Thread(target=body, name="server under test", daemon=True)
    thread.start()
    assert ready.wait(WAIT_S), "the server did not start"
    if "failed" in shared:
        raise shared["failed"]
    try:
        yield Live(shared["url"], parts, shared["loop"])
    finally:
        shared["server"].should_exit = True
        thread.join(WAIT_S)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"
        assert "failed" not in shared, shared["failed"]


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Polls. Fails after WAIT_S."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.005)


@contextmanager
def slow_steps(seconds: float) -> Iterator[None]:
    """Every step of every engine in this process takes this much longer, so that a request runs as long as a test
    needs."""
    compute = ModelRunner.execute

    def execute(runner: ModelRunner, plan: Plan) -> StepResult:
        time.sleep(seconds)
        return compute(runner, plan)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelRunner, "execute", execute)
        yield


@contextmanager
def reader_that_does_not_read(live: Live) -> Iterator[None]:
    """A client with a small buffer that has asked for 100 long streamed answers.

    The answers have log probabilities: waiting pieces are sent as one, and the text alone would fit into the buffers of
    two sockets.
    """
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", live.port))
        asked = {"model": live.model, "prompt": "x", "stream": True, "n": 100, "max_tokens": 900}
        body = json.dumps({**asked, "logprobs": 5})
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        yield
