"""Decides which requests are let in: every request passes here first, and every path that is not public needs the key.

Decides on scope["path"] and raw headers only, never on a URL rebuilt from the Host header.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from twostroke.server.errors import Problem
from twostroke.server.gate.origins import FOREIGN_ORIGIN, asks_first, may_ask
from twostroke.server.gate.reach import Reach
from twostroke.server.page_files import page_files
from twostroke.types.errors import ConfigError

LABEL_DIGITS = 16
MAX_HEADERS = 100
PAGE_PATH = "/"
PUBLIC_PATHS = frozenset({"/health", "/live", "/ready", *page_files()})
_FROM_CONTAINERS = re.compile(r"(?:host|gateway)\.[a-z0-9-]{1,40}\.internal")
"""The names that Docker, Podman and other container engines give to their own machine, such as host.docker.internal.
Nobody can register a name below `internal`, so no page of another site has such a name."""
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,255}))(?::\d{1,5})?")

BAD_KEY = Problem(
    401,
    "The API key is missing or wrong; send it as 'Authorization: Bearer KEY', or in the header x-api-key or api-key.",
    code="invalid_api_key",
    headers={"www-authenticate": "Bearer"},
)
BAD_HOST = Problem(400, "The Host header is missing or malformed.", code="invalid_host")
TOO_MANY_HEADERS = Problem(431, f"The request has more than {MAX_HEADERS} headers.", code="too_many_headers")
KEY_HEADERS = (b"x-api-key", b"api-key")


CLIENT = "twostroke.client"
"""The scope holds a label of the request's API key under this name; "" where the server has no keys. The label is not
the API key itself."""


class Gate:
    """ASGI middleware that refuses requests with a wrong Host or Origin header or without the API key.

    api_key: several keys are separated by commas; None admits all clients, which `run` allows on loopback addresses
    only. loopback_only: whether Host and Origin must name this machine. reach: other host names and origins that are
    accepted. Raises ConfigError for an empty key, which would be no key at all.
    """

    def __init__(self, app: ASGIApp, api_key: str | None, loopback_only: bool, reach: Reach | None = None) -> None:
        self._app = app
        self._key_digests = None if api_key is None else tuple(_digest(key.encode()) for key in split_keys(api_key))
        self._loopback_only = loopback_only
        self._reach = reach or Reach()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or answers it with 204, 400, 401 or 403. Anything but HTTP is dropped."""
        if scope["type"] != "http":
            return
        headers = {name.lower(): value for name, value in reversed(scope["headers"])}
        problem = TOO_MANY_HEADERS if len(scope["headers"]) > MAX_HEADERS else self._place_problem(scope, headers)
        client = self._client(scope, headers)
        if problem is None and asks_first(scope, headers):
            if self._reach.allows_origin(headers[b"origin"]):
                await may_ask(headers)(scope, receive, send)
                return
            problem = FOREIGN_ORIGIN
        if problem is None and client is None:
            problem = BAD_KEY
        if problem is None:
            await self._app({**scope, CLIENT: client}, receive, send)
        else:
            await problem.response(scope["path"])(scope, receive, send)

    def _place_problem(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Problem | None:
        """Returns the problem of a request that was sent from a foreign web page or to a foreign host name, or None.
        DNS rebinding lets a foreign name point to this machine; the Host and Origin headers then contain the foreign
        name."""
        if b"host" not in headers and scope.get("http_version") == "1.0":
            host = ""  # no browser sends such a request, but probes of load balancers do
        elif (name := host_name(headers.get(b"host", b""))) is None:
            return BAD_HOST
        else:
            host = name
        if not self._loopback_only:
            return None
        own = not host or is_loopback(host) or _FROM_CONTAINERS.fullmatch(host)
        if not own and not self._reach.knows_host(host):
            return foreign_host(host)
        origin = headers.get(b"origin")
        if origin is None:
            return FOREIGN_ORIGIN if _of_another_site(scope, headers) else None
        return None if self._own_page(origin, host) or self._reach.allows_origin(origin) else FOREIGN_ORIGIN

    def _own_page(self, origin: bytes, host: str) -> bool:
        """Returns True for web pages that come from this machine or from this server, by one of its host names. origin:
        the page's Origin header."""
        name = _origin_name(origin)
        return is_loopback(name) or self._reach.names_host(name) or (bool(host) and name == host)

    def _client(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str | None:
        """Returns the label of the key that came with the request; None when the request needs a key and has none that
        fits."""
        if self._key_digests is None or scope["path"] in PUBLIC_PATHS:
            return ""
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        bearer = token.strip() if kind.lower() == b"bearer" else b""
        sent = (bearer, *(headers.get(name, b"") for name in KEY_HEADERS))
        # All digests have the same length and all comparisons always run, so the time reveals nothing about the keys.
        digests = [_digest(key) for key in sent]
        fits = [known for known in self._key_digests for digest in digests if hmac.compare_digest(digest, known)]
        return fits[0].hex()[:LABEL_DIGITS] if fits else None


def _of_another_site(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    """Returns True when a page of another site made the browser send the request, unless the user followed a link to
    our page.

    Images, scripts and `no-cors` fetches send no Origin with a GET. Sec-Fetch-Site is a header that no page can forge
    or leave out.
    """
    if headers.get(b"sec-fetch-site", b"").strip().lower() != b"cross-site":
        return False
    whole_tab = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
    return not (whole_tab and scope["path"] == PAGE_PATH and scope["method"] in ("GET", "HEAD"))


def foreign_host(host: str) -> Problem:
    """Returns 403 with advice. host: a name without any character that could do harm."""
    return Problem(
        403,
        f"The Host header names another machine, {host}; use 127.0.0.1 or localhost. If a proxy in front of the server "
        f"has this name, start the server with --allow-host {host}.",
        code="invalid_host",
    )


def client_of(scope: Scope) -> str:
    """Returns the label of the key that a request came with. Raises KeyError when it did not pass the gate."""
    label: str = scope[CLIENT]
    return label


def split_keys(text: str) -> tuple[str, ...]:
    """Returns the keys: "a,b" -> ("a", "b"). Raises ConfigError when one is empty."""
    keys = tuple(key.strip() for key in text.split(","))
    if not all(keys):
        raise ConfigError(
            "An API key is empty.", why="Every client would have it.", fix="Leave --api-key out, or give one."
        )
    return keys


def host_name(header: bytes) -> str | None:
    """Returns the name in a Host header, lower case and without the port; None when it is malformed."""
    match = _HOST.fullmatch(header.decode("latin-1"))
    return None if match is None else (match[1] or match[2]).lower()


def is_loopback(name: str) -> bool:
    """Returns True for names and addresses that always mean this machine, and never for a name that a DNS server could
    answer."""
    try:
        return name.lower() == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _origin_name(header: bytes) -> str:
    try:
        return urlsplit(header.decode("latin-1")).hostname or ""
    except ValueError:
        return ""


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
