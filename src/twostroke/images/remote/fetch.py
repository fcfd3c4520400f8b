"""Fetches a file over http or https: from the address that was checked, within a number of bytes and of seconds."""

from __future__ import annotations

import io
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urljoin

from twostroke.images.remote.allowed import AllowedHosts, UrlPlace
from twostroke.types.errors import InvalidRequest

WALL_S = 10.0
CONNECT_S = 4.0
MOST_REDIRECTS = 3
REDIRECTS = (301, 302, 303, 307, 308)
READ_BYTES = 1 << 16
AGENT = "twostroke"

Resolve = Callable[[str, int], Sequence[str]]
"""resolve(host, port): returns the addresses of a name. Raises OSError."""
Connect = Callable[[tuple[str, int], float], socket.socket]
"""connect((address, port), seconds): returns an open connection. Raises OSError."""


def resolved(host: str, port: int) -> list[str]:
    """Returns the addresses that the system knows for a name."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class ImageFetcher:
    """Satisfies FetchesImages. A name is resolved once for each request, and the connection goes to an address that was
    checked.

    most_bytes: the most bytes of a file. wall_s: the most seconds of a fetch with all of its redirects. tls: None for
    the certificates that the system trusts.
    """

    def __init__(
        self,
        allowed: AllowedHosts,
        most_bytes: int,
        wall_s: float = WALL_S,
        *,
        resolve: Resolve = resolved,
        connect: Connect = socket.create_connection,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allowed, self._most_bytes, self._wall_s = allowed, most_bytes, wall_s
        self._resolve, self._connect, self._tls = resolve, connect, tls

    def host_of(self, url: str) -> str:
        return self._allowed.place(url).host

    def fetch(self, url: str) -> bytes:
        until_s = time.monotonic() + self._wall_s
        place = self._allowed.place(url)
        for _ in range(MOST_REDIRECTS + 1):
            found = self._answer(place, until_s)
            if isinstance(found, bytes):
                return found
            url = urljoin(url, found)
            place = self._allowed.place(url)
        raise InvalidRequest(
            f"The image's URL is redirected more than {MOST_REDIRECTS} times.",
            param="image",
            fix="Send the URL at which the file is.",
        )

    def _answer(self, place: UrlPlace, until_s: float) -> bytes | str:
        """Returns the file, or the URL to which the host redirects."""
        try:
            with self._connected(place, until_s) as plain:
                wire = _Wire(self._secured(plain, place, until_s), until_s)
                return self._read(_asked(wire, place), place)
        except TimeoutError:
            why = f"A fetch may take {self._wall_s:g} s."
            raise _failed(place, "does not send the image in time", why) from None
        except (OSError, HTTPException, UnicodeError, ValueError) as error:
            raise _failed(place, "cannot be asked for the image", f"{type(error).__name__}.") from None

    def _connected(self, place: UrlPlace, until_s: float) -> socket.socket:
        """Returns a connection to the first of the host's addresses that answers."""
        addresses, last = self._allowed.judged(place, self._resolve(place.host, place.port)), OSError("no address")
        for address in addresses:
            try:
                return self._connect((address, place.port), min(CONNECT_S, _left_s(until_s)))
            except OSError as error:
                last = error
        raise last

    def _secured(self, plain: socket.socket, place: UrlPlace, until_s: float) -> socket.socket:
        if place.scheme == "http":
            return plain
        plain.settimeout(_left_s(until_s))
        self._tls = self._tls or ssl.create_default_context()
        return self._tls.wrap_socket(plain, server_hostname=place.host)

    def _read(self, answer: HTTPResponse, place: UrlPlace) -> bytes | str:
        location = answer.getheader("location")
        if answer.status in REDIRECTS and location:
            return location
        if answer.status != 200:
            raise _failed(place, f"answered {answer.status} for the image", "")
        data = bytearray()
        if (answer.length or 0) <= self._most_bytes:
            while len(data) <= self._most_bytes and (piece := answer.read(READ_BYTES)):
                data += piece
            if answer.length and len(data) <= self._most_bytes:
                raise _failed(place, "ended the image before its end", "")
            if len(data) <= self._most_bytes:
                return bytes(data)
        raise InvalidRequest(
            f"The file at {place.host} has more than {self._most_bytes:,} bytes.",
            param="image",
            fix="Make the image smaller.",
        )


def _asked(wire: _Wire, place: UrlPlace) -> HTTPResponse:
    """Sends a GET and returns the answer, whose body is not read yet."""
    connection = HTTPConnection(place.host, place.port)
    connection.sock = wire
    connection.putrequest("GET", place.target, skip_host=True, skip_accept_encoding=True)
    headers = {"Host": place.written_host, "User-Agent": AGENT, "Accept": "image/*", "Connection": "close"}
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    return connection.getresponse()


def _failed(place: UrlPlace, what: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"The host {place.host} {what}.", param="image", why=why, fix="Send the file itself: data:image/png;base64,..."
    )


def _left_s(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


class _Wire:
    """The part of a socket that HTTPConnection uses. A host that sends single bytes slowly is cut off at the same time
    as any other."""

    def __init__(self, own: socket.socket, until_s: float) -> None:
        self._own, self._until_s = own, until_s

    def sendall(self, data: bytes) -> None:
        """See socket.socket."""
        self._own.settimeout(_left_s(self._until_s))
        self._own.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Returns the object that reads from the socket."""
        return io.BufferedReader(_Reads(self._own, self._until_s))

    def close(self) -> None:
        """Does nothing: http.client calls it before the body is read. The code that opened the socket closes it."""


class _Reads(io.RawIOBase):
    def __init__(self, own: socket.socket, until_s: float) -> None:
        self._own, self._until_s = own, until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._own.settimeout(_left_s(self._until_s))
        return self._own.recv_into(buffer)
