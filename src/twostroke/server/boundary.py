"""The outermost layer: a request id on every response, and a last safety net for every request."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twostroke.server.errors import HEADERS_TOO_LARGE, INTERNAL
from twostroke.server.facts import KEY, Listener, RequestFacts
from twostroke.server.telemetry.metrics import ServerMetrics
from twostroke.server.visit import note_arrival

log = logging.getLogger("twostroke.server")
MAX_HEADER_BYTES = 64 * 1024
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def too_large(scope: Scope) -> bool:
    """Returns True when a request's head is too large. h11 bounds only heads that come in pieces."""
    headers = scope["headers"]
    size_bytes = sum(len(name) + len(value) for name, value in headers) + len(scope["path"])
    return size_bytes + len(scope.get("query_string", b"")) > MAX_HEADER_BYTES


class Boundary:
    """ASGI middleware. A client's x-request-id is returned when it is harmless in a log; else a new one is made.

    listeners: called for each request at its end. wall_clock: returns Unix seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: ServerMetrics,
        new_id: Callable[[], str],
        listeners: Sequence[Listener] = (),
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._listeners = listeners
        self._wall_clock = wall_clock
        self._app = app
        self._metrics = metrics
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Never raises an Exception. An exception that gets here is logged, and becomes a 500 when nothing was sent
        yet."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        note_arrival(scope, time.monotonic())
        request_id = self._request_id(scope)
        facts = RequestFacts(request_id, scope["method"], scope["path"], self._wall_clock(), _trace(scope))
        scope[KEY] = facts
        started = False

        async def marked_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                facts.status = message["status"]
                self._metrics.responses.labels(str(message["status"])).inc()
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            if too_large(scope):
                await HEADERS_TOO_LARGE.response()(scope, receive, marked_send)
                return
            await self._app(scope, receive, marked_send)
        except Exception:
            log.exception("request %s failed", request_id, extra={"request_id": request_id})
            if not started:
                await INTERNAL.response(scope["path"])(scope, receive, marked_send)
        finally:
            facts.end_s = self._wall_clock()
            self._tell(facts)

    def _tell(self, facts: RequestFacts) -> None:
        for listener in self._listeners:
            try:
                listener(facts)
            except Exception:
                log.exception("a listener failed", extra={"request_id": facts.request_id})

    def _request_id(self, scope: Scope) -> str:
        sent = next((value for name, value in scope["headers"] if name.lower() == b"x-request-id"), b"")
        text: str = sent.decode("latin-1")
        return text if _SAFE_ID.fullmatch(text) else self._new_id()


def _trace(scope: Scope) -> dict[str, str]:
    wanted = (b"traceparent", b"tracestate")
    return {name.decode(): value.decode("latin-1")[:512] for name, value in scope["headers"] if name.lower() in wanted}
