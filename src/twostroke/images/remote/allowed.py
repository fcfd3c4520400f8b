"""The addresses from which images may be fetched: hosts that the operator listed, at addresses that are public.

    allowed = AllowedHosts.of(("https://images.example.org:443",))
    place = allowed.place("https://images.example.org/a.png")
    addresses = allowed.judged(place, resolve(place.host, place.port))
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from twostroke.types.errors import InvalidRequest

OPTION = "--image-urls"
ANY = "*"
PORTS = {"https": 443, "http": 80}
MOST_CHARACTERS = 2048
_PLAIN = re.compile(r"[!-~]+")
_NAME = re.compile(r"[a-z0-9._-]{1,253}")
_CARRIERS = tuple(
    map(IPv6Network, ("::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))
)
"""IPv6 addresses that lead to an IPv4 address."""


class UrlPlace(Struct, frozen=True):
    """The parts of a URL. host: the host in lower case; an IPv6 address stands without brackets. target: path and
    query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def written_host(self) -> str:
        """The host in the form of a Host header."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == PORTS[self.scheme] else f"{name}:{self.port}"


def is_remote(url: str) -> bool:
    """Returns whether a URL asks for something on another machine."""
    return url[:8].lower().startswith(("http://", "https://"))


class AllowedHosts(Struct, frozen=True):
    """The hosts from which images may be fetched. listed: scheme, host and port of each entry; the host * stands for
    any host. addresses: the entries that are IP addresses; they may be private."""

    listed: frozenset[tuple[str, str, int]] = frozenset()
    addresses: frozenset[IPv4Address | IPv6Address] = frozenset()

    @classmethod
    def of(cls, texts: Iterable[str]) -> AllowedHosts:
        """Returns the hosts of texts such as https://images.example.org:443."""
        listed = {_listed(text) for text in texts}
        found = (_as_address(host) for _, host, _ in listed)
        return cls(frozenset(listed), frozenset(each for each in found if each is not None))

    def place(self, url: str) -> UrlPlace:
        """Returns the parts of an allowed URL. Raises InvalidRequest for any other URL."""
        if not self.listed:
            raise InvalidRequest(
                "The image's URL asks for a file on another machine; this server fetches none.",
                param="image",
                why=f"It was started without {OPTION}.",
                fix=f"Send the file itself, data:image/png;base64,..., or start the server with {OPTION} HOST.",
            )
        found = place_of(url)
        ports = ((found.scheme, name, found.port) for name in (found.host, ANY))
        if not any(each in self.listed for each in ports):
            raise InvalidRequest(
                f"Images are not fetched from {found.scheme}://{found.host}:{found.port}.",
                param="image",
                why=f"{OPTION} does not name it.",
                fix="Send the file itself: data:image/png;base64,...",
            )
        return found

    def judged(self, place: UrlPlace, found: Iterable[str]) -> list[str]:
        """Returns the addresses of the host, all of which may be used. Raises InvalidRequest where there is none, or
        where one is private and not listed."""
        texts = list(found)
        if not texts:
            raise InvalidRequest(f"The host {place.host} of the image's URL has no address.", param="image")
        if not all(map(self._reachable, texts)):
            raise InvalidRequest(
                f"The host {place.host} of the image's URL has an address that is not public.",
                param="image",
                why="Nothing is fetched from private, loopback, link-local and multicast addresses.",
                fix=f"Send the file itself. An operator may list such an address by its digits in {OPTION}.",
            )
        return texts

    def _reachable(self, text: str) -> bool:
        address = _as_address(text)
        return address is not None and (address in self.addresses or is_public(address))


class FetchesImages(Protocol):
    """Fetches files from other machines; any thread may ask."""

    def host_of(self, url: str) -> str:
        """Returns the host of a URL. Raises InvalidRequest where nothing may be fetched from that host."""

    def fetch(self, url: str) -> bytes:
        """Returns the bytes of the file at an allowed URL. Raises InvalidRequest for every failure."""


class FetchesNothing:
    """Satisfies FetchesImages where no host is allowed."""

    def host_of(self, url: str) -> str:
        """Raises InvalidRequest: no host is allowed."""
        return AllowedHosts().place(url).host

    def fetch(self, url: str) -> bytes:
        """Raises InvalidRequest: no host is allowed."""
        return self.host_of(url).encode()


NOTHING_ELSEWHERE = FetchesNothing()


def place_of(url: str) -> UrlPlace:
    """Returns the parts of an http or https URL. Raises InvalidRequest for a URL that two readers could read
    differently."""
    wrong = InvalidRequest(
        "The image's URL cannot be read.",
        param="image",
        fix="Write https://HOST/PATH, without a user, and with %XX in place of spaces and letters that are not ASCII.",
    )
    if len(url) > MOST_CHARACTERS or not _PLAIN.fullmatch(url) or "\\" in url:
        raise wrong
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in PORTS or "@" in parts.netloc or not (_NAME.fullmatch(host) or _is_address(host)):
        raise wrong
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return UrlPlace(parts.scheme, host.removesuffix("."), PORTS[parts.scheme] if port is None else port, target)


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Returns whether an address is public. Returns False for an IPv6 address that contains an IPv4 address."""
    if isinstance(address, IPv6Address) and any(address in network for network in _CARRIERS):
        return False
    narrow = address.is_multicast or address.is_reserved or (isinstance(address, IPv6Address) and address.is_site_local)
    return address.is_global and not narrow


def _listed(text: str) -> tuple[str, str, int]:
    scheme, _, rest = text.partition("://")
    name, _, port = rest.rpartition(":")
    return scheme, name.strip("[]"), int(port)


def _as_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


def _is_address(text: str) -> bool:
    return _as_address(text) is not None
