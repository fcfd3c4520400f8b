"""CORS: headers that allow a browser to show an answer to a page of another site.

Without --allow-origin no header is sent. The headers are on every answer, also on errors and streams; otherwise a
browser would hide the reason of a refusal from its page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twostroke.server.errors import Problem
from twostroke.server.gate.reach import Reach

METHODS = "GET, HEAD, POST, PUT, DELETE, OPTIONS"
KEPT_S = 600
_FIELDS = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}")
_EXPOSED = "*, x-request-id, retry-after, retry-after-ms, x-should-retry, x-twostroke-ignored-fields"
"""The headers that a page may read. The star does not count when a page sends credentials, so the headers that clients
read are named too."""

FOREIGN_ORIGIN = Problem(
    403,
    "Requests from pages of other sites are refused. To let a page ask, start the server with --allow-origin and the "
    "page's origin, such as https://app.example.org.",
    code="invalid_origin",
)


class Origins:
    """ASGI middleware that adds the CORS headers to each answer. Whether a request from a page of another site is
    accepted is decided in Gate."""

    def __init__(self, app: ASGIApp, reach: Reach) -> None:
        self._app = app
        self._reach = reach

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._reach.origins:
            await self._app(scope, receive, send)
            return
        own = self._headers(next((value for name, value in scope["headers"] if name.lower() == b"origin"), None))

        async def marked_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        await self._app(scope, receive, marked_send)

    def _headers(self, origin: bytes | None) -> list[tuple[bytes, bytes]]:
        if self._reach.allows_any_page:
            return [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", _EXPOSED.encode())]
        varies = [(b"vary", b"Origin")]  # also without an Origin header: a cache must not give this answer to a page
        if origin is None or not self._reach.allows_origin(origin):
            return varies
        return [
            *varies,
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-credentials", b"true"),
            (b"access-control-expose-headers", _EXPOSED.encode()),
        ]


def asks_first(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    """Returns True for a preflight: a browser asks whether a page may send the request that it wants to send."""
    return scope["method"] == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers


def may_ask(headers: Mapping[bytes, bytes]) -> Response:
    """Returns the answer to the preflight request of an allowed page. It needs no key: only the request after it has
    the key."""
    fields = headers.get(b"access-control-request-headers", b"")
    own = {"access-control-allow-methods": METHODS, "access-control-max-age": str(KEPT_S)}
    if _FIELDS.fullmatch(fields):
        own["access-control-allow-headers"] = fields.decode()
    if headers.get(b"access-control-request-private-network") == b"true":
        own["access-control-allow-private-network"] = "true"
    return Response(status_code=204, headers=own)
