"""uvicorn's HTTP/1.1 protocol with bounds on slow clients, and refusals that clients can read.

uvicorn has a time limit for idle connections. It has none for a client that sends a header byte now and then, or that
leaves an answer unread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import h11
from msgspec import Struct
from starlette.types import Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from twostroke.server.errors import Problem
from twostroke.server.facts import facts_of
from twostroke.server.gate.body_writer import Park, give_body_writer, park_of
from twostroke.server.gate.far_end import FarEnd

WRITE_BUFFER_BYTES = 64 * 1024
MAX_HEADER_BYTES = 64 * 1024
BAD_HTTP = Problem(400, "This is no HTTP/1.1 request.", code="invalid_http")
TWO_LENGTHS = Problem(
    400,
    "The request has both Content-Length and Transfer-Encoding, so it is not clear where it ends. Send one of them.",
    code="invalid_http",
)
LOOK_S = 0.25
"""The seconds between two checks of whether a client reads its answer."""
FIRST_ASK_S = 0.01
log = logging.getLogger("twostroke.server")
_quiet = logging.getLogger("twostroke.http")
_quiet.setLevel(logging.ERROR)


class Patience(Struct, frozen=True):
    """How long a connection waits for its client, in seconds.

    header_s: from the connection, or from a further request's first byte, until its headers are complete. stalled_s: a
    client that reads no byte of its answer for this time is cut off. crowded_s: the request is paused if its client has
    read no byte for this time, the client's own buffer is full, and `crowded` returns True. crowded: returns True when
    other requests wait for a place in the batch. A paused request goes on when its client has read half of the bytes
    that were written, so that a slow client loses nothing.
    """

    header_s: float
    stalled_s: float
    crowded_s: float
    crowded: Callable[[], bool]


class ChunkConnection(h11.Connection):
    """h11's connection, except that a chunk of a chunked body is framed at once: each token of a stream is one chunk.
    h11 makes the same bytes with its state machine, which a chunk does not change.

    It refuses a request with two lengths (RFC 9112, 6.1), and ignores empty lines in front of a request (2.2), which
    old clients send after a body. written_bytes: the bytes of all answers so far.
    """

    _chunked = False
    written_bytes = 0
    two_lengths = False

    @property
    def in_chunks(self) -> bool:
        """True while more of an answer's body may be sent, and the body is sent in chunks (Transfer-Encoding:
        chunked)."""
        return self._chunked and self.our_state is h11.SEND_BODY

    def next_event(self) -> Any:
        """Returns the next event, as h11.Connection does, but skips empty lines in front of a request. Raises
        RemoteProtocolError for a request with two lengths."""
        if self.their_state is h11.IDLE and (begun := self.trailing_data[0])[:1] in _LINE_ENDS:
            self._receive_buffer.maybe_extract_at_most(len(begun) - len(begun.lstrip(b"\r\n")))
        event = super().next_event()
        if isinstance(event, h11.Request) and _BOTH.issubset(name for name, _ in event.headers):
            self.two_lengths = True
            raise h11.RemoteProtocolError("two lengths")
        return event

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override]
        """Returns the bytes of an event, as h11.Connection does, and counts them in written_bytes."""
        raw = self._sent(event)
        self.written_bytes += len(raw or b"")
        return raw

    def _sent(self, event: h11.Event) -> bytes | None:
        if isinstance(event, h11.Data) and self.in_chunks:
            return chunk(bytes(event.data)) if event.data else b""
        raw = super().send(event)
        if isinstance(event, h11.Response):
            self._chunked = raw is not None and b"\r\ntransfer-encoding: chunked\r\n" in raw.lower()
        return raw


_BOTH = frozenset({b"content-length", b"transfer-encoding"})
_LINE_ENDS = (b"\r", b"\n")


def chunk(data: bytes) -> bytes:
    """Returns one chunk of a chunked body. data: the content; it must not be empty, because an empty chunk ends the
    body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class ChunkWriter:
    """Writes pieces of the present answer of a connection to its socket. Satisfies BodyWriter."""

    def __init__(self, conn: ChunkConnection, transport: asyncio.Transport, flow: FlowControl) -> None:
        self._conn, self._transport, self._flow = conn, transport, flow

    @property
    def takes_now(self) -> bool:
        return self._conn.in_chunks and not (self._flow.write_paused or self._transport.is_closing())

    def write(self, data: bytes) -> None:
        raw = chunk(data)
        self._conn.written_bytes += len(raw)
        self._transport.write(raw)


class DeadlineProtocol(H11Protocol):
    """uvicorn's protocol, with a bound on the bytes of an answer that wait for a slow client: at the bound, the writer
    waits.

    A client that has ended its side after its request gets its answer when it is still connected.
    """

    def __init__(self, *args: Any, patience: Patience, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = self._chunks = ChunkConnection(
            h11.SERVER, self.config.h11_max_incomplete_event_size or MAX_HEADER_BYTES
        )
        self._patience = patience
        self._deadline: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._ask: asyncio.TimerHandle | None = None
        self._delivered_bytes = 0
        self._moved_s = 0.0
        self._parked: Park | None = None
        self._parked_bytes = 0
        self._ended = False  # True when the client sends no more
        self.logger = _quiet  # a client that sends nonsense must not fill our log

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by asyncio: bounds the write buffer, and starts the deadline for the first request's headers."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._far_end = FarEnd(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio with new bytes. Does nothing for a client that has reset the connection meanwhile."""
        if self._far_end.gone:
            return self._far_end.drop()
        super().data_received(data)
        self._watch()

    def handle_events(self) -> None:
        """Reads requests from the received bytes. Adds a ChunkWriter to the ASGI scope of each POST request, by which
        the app can write to the socket directly. Starts the checks of whether the client reads."""
        super().handle_events()
        if self.cycle is not None and self._look is None:
            self._moved_s = self.loop.time()
            self._look_later()
        if self.cycle is not None and not self.cycle.response_started and self.cycle.scope["method"] == "POST":
            scope = cast(Scope, self.cycle.scope)
            give_body_writer(scope, ChunkWriter(self._chunks, self.transport, self.flow))

    def eof_received(self) -> bool:  # type: ignore[override]
        """Called by asyncio when the client has ended its side, or is gone. Returns True when it may still wait for an
        answer."""
        self._ended = True
        if not self._answers:
            return False
        self._far_end.ask()
        self._ask = self.loop.call_later(FIRST_ASK_S, self._still_there, FIRST_ASK_S)
        return True

    def on_response_complete(self) -> None:
        """Called by uvicorn after an answer: closes the connection of a client that sends no more requests."""
        super().on_response_complete()
        if self._ended and not self._answers:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio at the end of the connection: stops its timers."""
        self._unwatch()
        for timer in (self._look, self._ask):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answers with status 400 as JSON, like every other error, and closes the connection."""
        body = (TWO_LENGTHS if self._chunks.two_lengths else BAD_HTTP).body()
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def _watch(self) -> None:
        """Starts the deadline for a request's headers; receiving bytes does not extend it. Removes the deadline when
        the headers are complete."""
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._patience.header_s, self._too_slow)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.abort()

    @property
    def _answers(self) -> bool:
        """True while a whole request waits for its answer, or for the rest of it."""
        waits = self.cycle is not None and not self.cycle.response_complete
        return waits and self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)

    def _still_there(self, waited_s: float) -> None:
        """Checks whether a client that has ended its side of the connection is gone. FarEnd.ask has sent it a byte; how
        long the reply takes depends on the network. So the check is repeated after twice the time, up to LOOK_S."""
        if self._far_end.gone:
            self._far_end.drop()
        elif self._answers:
            waited_s = min(2 * waited_s, LOOK_S)
            self._ask = self.loop.call_later(waited_s, self._still_there, waited_s)

    def _look_later(self) -> None:
        self._look = self.loop.call_later(min(LOOK_S, self._patience.stalled_s / 4), self._look_at_reader)

    def _look_at_reader(self) -> None:
        """Cuts off a client that has taken nothing of the written bytes for too long. The checks go on until all is
        taken."""
        untaken, now = self._far_end.untaken_bytes, self.loop.time()
        delivered = self._chunks.written_bytes - untaken
        if not untaken or delivered > self._delivered_bytes:
            self._moved_s = now
        self._delivered_bytes = delivered
        self._share_place(untaken, now - self._moved_s)
        if not untaken and (self.cycle is None or self.cycle.response_complete):
            self._look = None
        elif now - self._moved_s >= self._patience.stalled_s:
            request_id = facts_of(cast(Scope, self.cycle.scope)).request_id
            log.warning("dropped: its client stopped reading", extra={"request_id": request_id})
            self._far_end.drop()
        else:
            self._look_later()

    def _share_place(self, untaken: int, still_s: float) -> None:
        """Pauses the generation for a client that has stopped reading while other requests wait, and resumes it when
        the client reads again.

        Each check pauses the request again: a step that was running at an earlier check may have left it in the batch.
        """
        patience = self._patience
        if self._parked is not None and 2 * untaken <= self._parked_bytes:
            self._parked(False)
            self._parked = None
        elif still_s >= patience.crowded_s and self._far_end.reads_nothing and patience.crowded():
            park = None if self.cycle is None else park_of(cast(Scope, self.cycle.scope))
            if park is not None:
                park(True)
                before = 0 if self._parked is None else self._parked_bytes
                self._parked, self._parked_bytes = park, max(untaken, before)
