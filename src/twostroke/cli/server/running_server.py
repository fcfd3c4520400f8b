"""Sends requests to a running server, for commands such as `twostroke top`."""

from __future__ import annotations

import socket
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, ProxyHandler, Request, build_opener

from twostroke.cli.shared.server_records import local_servers
from twostroke.types.errors import ConfigError

DEFAULT_URL = "http://127.0.0.1:8000"
UNIX = "unix:"
LONGEST_S = 60.0


def address_here() -> str:
    """Returns the address of this user's server on this machine, and the usual address where none runs. Of several
    servers it is the one at the usual address. Raises ConfigError where several run and none is there."""
    addresses = [record.url for record in local_servers()]
    if DEFAULT_URL in addresses or not addresses:
        return DEFAULT_URL
    if len(addresses) > 1:
        raise ConfigError(
            "Several servers of this user run on this machine.",
            why=f"Their addresses are {', '.join(addresses)}.",
            fix="Choose one with --url.",
        )
    return addresses[0]


class _FileConnection(HTTPConnection):
    """An HTTP connection to a server that listens on a Unix socket. path: the socket's file."""

    def __init__(self, path: str, wait_s: float) -> None:
        super().__init__("localhost", timeout=wait_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _FileHandler(HTTPHandler):
    """Makes urllib reach a server that listens on a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def http_open(self, request: Request) -> HTTPResponse:

        def connected(_host: str, /, *, timeout: float = LONGEST_S, **_more: Any) -> HTTPConnection:
            return _FileConnection(self._path, timeout)

        return self.do_open(connected, request)


class RunningServer:
    """A server that runs at `url`, with or without /v1; unix:PATH for a socket of the file system. Raises ConfigError
    for a text that is no address."""

    def __init__(self, url: str, api_key: str | None, wait_s: float) -> None:
        self._handlers: tuple[HTTPHandler, ...] = ()
        self.url = url
        if url.startswith(UNIX):
            self._handlers, url = (_FileHandler(url.removeprefix(UNIX)),), "http://localhost"
        if urlsplit(url).scheme not in ("http", "https"):
            raise ConfigError(f"--url {url!r} is no address of a server.", fix=f"Write it like {DEFAULT_URL}.")
        self._base = url.rstrip("/").removesuffix("/v1")
        self._headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        self._wait_s = wait_s

    def open(self, path: str, body: bytes | None = None) -> IO[bytes]:
        """Returns the server's answer. body: JSON that is posted. Raises HTTPError where the server refuses,
        ConfigError where it does not answer."""
        # No proxy is used: the server is the caller's own. Environment variables are read in one place only.
        opener = build_opener(ProxyHandler({}), *self._handlers)
        headers = self._headers if body is None else {**self._headers, "content-type": "application/json"}
        try:
            got: IO[bytes] = opener.open(Request(f"{self._base}{path}", body, headers), None, self._wait_s)
            return got
        except HTTPError:
            raise
        except (URLError, HTTPException, OSError) as error:
            raise self.silent(error) from None

    def silent(self, error: Exception) -> ConfigError:
        """Returns the error for a server that does not answer."""
        reason = getattr(error, "reason", error)
        return ConfigError(
            f"No server answers at {self.url}.",
            why=f"{getattr(reason, 'strerror', None) or reason}.",
            fix="Start it with `twostroke serve`, or give its address with --url.",
        )

    def stranger(self) -> ConfigError:
        """Returns the error for an address at which another program answers."""
        return ConfigError(f"What answers at {self.url} is not Twostroke.", fix="Give the server's address with --url.")
