"""Requests that the server makes of itself: through the same routes, door and engine, without a socket."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message

from twostroke.server.api.disk_wish import INNER
from twostroke.server.errors import MODEL_STATE, problem_of
from twostroke.server.gate.security import CLIENT
from twostroke.types.decoders import json_decoder

log = logging.getLogger("twostroke.server")
_ANY = json_decoder(Any)


Take = Callable[[bytes], None]
MayRun = Callable[[str], Awaitable[bool]]
"""(a model's name; "" for none) -> may batch work ask for it now?"""


async def at_any_time(_model: str) -> bool:
    """Batch work never waits for its model: the server has one."""
    return True


class InnerReply(msgspec.Struct, frozen=True):
    """The answer to such a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body; None where it is no JSON."""
        try:
            return _ANY.decode(self.body)
        except msgspec.DecodeError:
            return None

    @property
    def retry_s(self) -> float | None:
        """When to ask again, where the server was too busy. A model that cannot be loaded is not asked for again."""
        hopeless = self.headers.get(MODEL_STATE) == "failed" or self.headers.get("x-should-retry") == "false"
        if self.status not in (429, 503) or hopeless:
            return None
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdigit() else 1.0


class InnerCalls:
    """app: what stands inside the gate. It is set when the app is made."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None

    async def post(self, path: str, body: Any, client: str, take: Take | None = None) -> InnerReply:
        """Ask, and wait for the whole answer. client: the label of the key that it is asked for.

        take: gets the bytes of an answer with status 200 as they come; the reply then has none.
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
    """The receive channel of a client that stays: it waits until the request is cancelled."""

    async def __call__(self) -> Message:
        """Never returns."""
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}


def scope_of(path: str, client: str) -> dict[str, Any]:
    """The ASGI scope of such a request."""
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
