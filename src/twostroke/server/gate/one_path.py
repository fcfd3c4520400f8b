"""Gives each route one path, in whichever way a client or a proxy writes it.

A base URL that ends with a slash gives //v1/models, and some clients end paths with a slash. Proxies may leave their
prefix in a path, or send the absolute form of a target (RFC 9112 3.2.2). This layer is outside of Gate (the check of
Host, Origin and API key), so that Gate and the router see the same path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

_ABSOLUTE = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
_SLASHES = re.compile("/{2,}")
MOVED = 308
_MOST_PARTS = 4


class OnePath:
    """ASGI middleware that rewrites each request's path to the form that routes have. prefix: the path below which a
    proxy serves this server, such as "/llm", or "". Paths are served with and without the prefix, because some proxies
    remove it."""

    def __init__(self, app: ASGIApp, prefix: str = "") -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on with its path rewritten: no prefix, no double slashes, no slash at the end. GET /llm
        for the prefix "/llm" is redirected to /llm/, because the web page has links relative to that address."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._prefix and scope["path"] == self._prefix and scope["method"] in ("GET", "HEAD"):
            await _to_folder(scope)(scope, receive, send)
        else:
            await self._app({**scope, **self._plain(scope)}, receive, send)

    def _plain(self, scope: Scope) -> dict[str, Any]:
        """Returns the changed entries of the ASGI scope: the path without prefix, double slashes and a slash at the
        end. When the target names a host, the Host header is set to this host."""
        path, changed = scope["path"], {}
        if absolute := _ABSOLUTE.match(path):
            path = path[absolute.end() :]
            others = [(name, value) for name, value in scope["headers"] if name.lower() != b"host"]
            changed["headers"] = [(b"host", absolute[1].encode("latin-1", "replace")), *others]
        path = _SLASHES.sub("/", path)
        if self._prefix and (path + "/").startswith(self._prefix + "/"):
            path = path[len(self._prefix) :]
        return {**changed, "path": path.rstrip("/") or "/"}


def api_paths(routes: Iterable[object]) -> frozenset[str]:
    """Returns the paths below /v1/ that clients make themselves: from a base URL and a fixed ending such as
    /chat/completions. routes: the routes of an app."""
    paths = (str(getattr(route, "path", "")) for route in routes)
    return frozenset(path for path in paths if path.startswith("/v1/") and "{" not in path)


def nothing_at(path: str, api_paths: Set[str]) -> str:
    """Returns the message for a path without a route. A base URL that ends too early or too late gives paths such as
    /chat/completions or /v1/v1/messages: then the message has the right path, which is one of `api_paths`."""
    what = "There is nothing at this path."
    parts = path.lower().split("/")[-_MOST_PARTS:]
    for first in range(len(parts)):
        end = "/" + "/".join(parts[first:])
        for meant in (end, "/v1" + end):
            if meant in api_paths:
                return f"{what} The path here is {meant}: check the base URL that the client has."
    return what


def _to_folder(scope: Scope) -> Response:
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    last = scope["path"].rpartition("/")[2].encode()
    return Response(status_code=MOVED, headers={"location": (last + b"/" + query).decode("latin-1")})
