"""Requests that the server sends to itself for batches and background responses. They take the same routes, limits and
engine as a client's requests, without a socket."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message

from twostroke.server.api.fields.disk_wish import INNER
from twostroke.server.errors import MODEL_STATE, problem_of
from twostroke.server.gate.security import CLIENT
from twostroke.types.reading.decoders import json_decoder

log = logging.getLogger("twostroke.server")
_ANY = json_decoder(Any)


Take = Callable[[bytes], None]
MayRun = Callable[[str], Awaitable[bool]]
"""A function of a model's name ("" for none). It returns True when batch work may use the model now."""


async def at_any_time(_model: str) -> bool:
    """Returns True: batch work never waits for its model, because the server has only one."""
    return True


class InnerReply(msgspec.Struct, frozen=True):
    """The answer to a request that the server sent to itself."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body; None when it is no JSON."""
        try:
            return _ANY.decode(self.body)
        except msgspec.DecodeError:
            return None

    @property
    def retry_s(self) -> float | None:
        """The seconds after which to ask again when the server was too busy, else None. A request for a model that
        cannot be loaded is not repeated."""
        hopeless = self.headers.get(MODEL_STATE) == "failed" or self.headers.get("x-should-retry") == "false"
        if self.status not in (429, 503) or hopeless:
            return None
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdigit() else 1.0


class InnerCalls:
    """Sends requests of the server to its own routes. app: the routes, without the check of API keys; set when the app
    is made."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None

    async def post(self, path: str, body: Any, client: str, take: Take | None = None) -> InnerReply:
        """Sends a request, and waits for the whole answer. client: the label of the key on whose behalf the request is
        sent.

        take: gets the bytes of an answer with status 200 as they come; the reply then has no body.
        """
        if self.app is None:
            raise RuntimeError("no app was attached")
        pending = [json.dumps(body).encode()]
        status, headers, parts = 500, dict[str, str](), list[bytes]()
        never = NeverDisconnected()

        async def receive() -> Message:
            if pending:
                return {"type": "http.request", "body": pending.pop(), "more_body": False}
            return await never()

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers.update({name.decode("latin-1").lower(): value.decode("latin-1")
                                for name, value in message.get("headers", [])})  # fmt: skip
            elif message["type"] == "http.response.body":
                (parts.append if take is None or status != 200 else take)(message.get("body", b""))

        try:
            await self.app(scope_of(path, client), receive, send)
        except Exception as error:
            log.exception("a request of stored work failed")
            return InnerReply(500, {}, problem_of(error).body())
        return InnerReply(status, headers, b"".join(parts))


class NeverDisconnected:
    """The receive channel of a client that never disconnects: it waits until the request is cancelled."""

    async def __call__(self) -> Message:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}


def scope_of(path: str, client: str) -> dict[str, Any]:
    """Returns the ASGI scope of a request that the server sends to itself."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "server": ("127.0.0.1", 0),
        "client": ("127.0.0.1", 0),
        CLIENT: client,
        INNER: True,
    }
