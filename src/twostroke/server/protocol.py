"""HTTP/1.1 on one connection: uvicorn's, with an end to waiting for headers, and refusals that our clients can read.

Knows: uvicorn's protocol, transports.
Must not know: routes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from twostroke.server.errors import Problem

HEADER_S = 10.0
_quiet = logging.getLogger("twostroke.http")
_quiet.setLevel(logging.ERROR)
WRITE_BUFFER_BYTES = 64 * 1024
BAD_HTTP = Problem(400, "This is no HTTP/1.1 request.", code="invalid_http")


class Protocol(H11Protocol):
    """A connection that has sent no whole head after HEADER_S is closed. Unsent answers are bounded in bytes."""

    _head_timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _quiet  # whoever sends nonsense must not fill our log

    def connection_made(self, transport: Any) -> None:
        """Bound the unsent bytes, wait for the first head."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to wait for."""
        self._head_done()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A head may be whole now; a further one may have begun."""
        idle = self.cycle is None or self.cycle.response_complete
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._head_done()
        elif idle and self._head_timer is None and not self.transport.is_closing():
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """As JSON, like every other error; the connection ends."""
        body = BAD_HTTP.body()
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEADER_S, self.transport.abort)

    def _head_done(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
