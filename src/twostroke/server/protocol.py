"""uvicorn's HTTP/1.1 protocol with a deadline for the headers of a request.

uvicorn has a time limit for idle connections, and none for one that sends a header byte now and then.

Knows: uvicorn's h11 protocol.
Must not know: routes, what a request asks for.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class DeadlineProtocol(H11Protocol):
    """header_s: from the connection, or from a further request's first byte, until its headers are complete."""

    def __init__(self, *args: Any, header_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_s = header_s
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._unwatch()
        super().connection_lost(exc)

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
