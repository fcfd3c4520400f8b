"""uvicorn's HTTP/1.1 protocol with a deadline for the headers of a request, and refusals that clients can read.

uvicorn has a time limit for idle connections, and none for one that sends a header byte now and then.

Knows: uvicorn's h11 protocol.
Must not know: routes, what a request asks for.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import h11
from starlette.types import Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from twostroke.server.errors import Problem
from twostroke.server.gate.body_writer import give_body_writer

WRITE_BUFFER_BYTES = 64 * 1024
MAX_HEADER_BYTES = 64 * 1024
BAD_HTTP = Problem(400, "This is no HTTP/1.1 request.", code="invalid_http")
_quiet = logging.getLogger("twostroke.http")
_quiet.setLevel(logging.ERROR)


class ChunkConnection(h11.Connection):
    """h11's connection, where a chunk of a chunked body is framed at once: each token of a stream is one. h11 makes the
    same bytes by its state machine, which a chunk does not change."""

    _chunked = False

    @property
    def in_chunks(self) -> bool:
        """True while the body of an answer may go on, and is sent in chunks."""
        return self._chunked and self.our_state is h11.SEND_BODY

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override]
        """See h11.Connection."""
        if isinstance(event, h11.Data) and self.in_chunks:
            return chunk(bytes(event.data)) if event.data else b""
        raw = super().send(event)
        if isinstance(event, h11.Response):
            self._chunked = raw is not None and b"\r\ntransfer-encoding: chunked\r\n" in raw.lower()
        return raw


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body. data: not empty, which would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class ChunkWriter:
    """Satisfies BodyWriter, for the present answer of a connection."""

    def __init__(self, conn: ChunkConnection, transport: asyncio.Transport, flow: FlowControl) -> None:
        self._conn, self._transport, self._flow = conn, transport, flow

    @property
    def takes_now(self) -> bool:
        """See BodyWriter."""
        return self._conn.in_chunks and not (self._flow.write_paused or self._transport.is_closing())

    def write(self, data: bytes) -> None:
        """See BodyWriter."""
        self._transport.write(chunk(data))


class DeadlineProtocol(H11Protocol):
    """header_s: from the connection, or from a further request's first byte, until its headers are complete.

    Bytes of an answer that wait for a slow reader are bounded here; then the writer waits.
    """

    def __init__(self, *args: Any, header_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = self._chunks = ChunkConnection(
            h11.SERVER, self.config.h11_max_incomplete_event_size or MAX_HEADER_BYTES
        )
        self._header_s = header_s
        self._deadline: asyncio.TimerHandle | None = None
        self.logger = _quiet  # a client that sends nonsense must not fill our log

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        super().data_received(data)
        self._watch()

    def handle_events(self) -> None:
        """Read requests from what was received. The app gets the body writer with its scope."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_started and self.cycle.scope["method"] == "POST":
            scope = cast(Scope, self.cycle.scope)
            give_body_writer(scope, ChunkWriter(self._chunks, self.transport, self.flow))

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._unwatch()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer with status 400 as JSON, like every other error, and close the connection."""
        body = BAD_HTTP.body()
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def _watch(self) -> None:
        """One timer for the whole of the headers: a byte now and then does not move it."""
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._header_s, self._too_slow)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.abort()
