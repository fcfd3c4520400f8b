"""An answer of /v1/responses that is stored while it is sent. The client gets the answer's last byte after the record
is written."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from twostroke.server.stored.responses import TERMINAL, ResponseRecord, StoredResponses
from twostroke.types.reading.decoders import json_decoder

_DATA = b"data: "
_OBJECT = json_decoder(dict[str, Any])


class KeptAnswer(Response):
    """Sends the answer of another ASGI response, and stores it in a record before its last byte is sent. answer: that
    other response. record: the record that gets the answer."""

    def __init__(self, answer: Response, record: ResponseRecord, stored: StoredResponses, client: str) -> None:
        self._answer, self._record, self._stored, self._client = answer, record, stored, client
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the wrapped response, and writes the record before the last part of the answer is sent."""
        held, started = bytearray(), list[Message]()

        async def passing(message: Message) -> None:
            """Passes an ASGI message of the wrapped response on to the client. The headers wait for the first part of
            the body. So a whole answer in one part that cannot be stored becomes an error instead."""
            nonlocal held
            if message["type"] == "http.response.start":
                started.append(message)
                return
            held += message.get("body", b"")
            if not message.get("more_body", False):
                await self._keep(bytes(held))
            while started:
                await send(started.pop())
            await send(message)

        plain = {name: value for name, value in scope.items() if name != "extensions"}
        await self._answer(plain, receive, passing)

    async def _keep(self, body: bytes) -> None:
        made = whole_response(body)
        if made is not None:
            self._record.response = made
            await self._stored.finish(self._client, self._record)


def whole_response(body: bytes) -> dict[str, Any] | None:
    """Returns the response object in the body of an answer, or in the last event of a streamed answer; None when there
    is none."""
    if body.startswith(b"{"):
        return _object(body)
    for block in reversed(body.split(b"\n\n")):
        if block.startswith(TERMINAL):
            event = _object(block.partition(_DATA)[2])
            return None if event is None else event.get("response")
    return None


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        return _OBJECT.decode(data)
    except msgspec.MsgspecError:
        return None
