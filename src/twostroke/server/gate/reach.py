"""By which names others may reach a server, next to this machine's own: nothing, unless the operator says so."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

ANY = "*"


class Reach(Struct, frozen=True):
    """hosts: names that a proxy sends in Host; "*.example.org" is all below, "*" any. origins: the origins of pages
    that may send requests from a browser; "*" in one stands for a part of a name or a port, alone for any page.
    root_path: where a proxy shows the server, such as "/llm"; "" for no prefix.
    """

    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    root_path: str = ""

    def knows_host(self, name: str) -> bool:
        """True for a name that the operator has given, or where any name is allowed."""
        return ANY in self.hosts or self.names_host(name)

    def names_host(self, name: str) -> bool:
        """True for a name that the operator has given."""
        below = {each[1:] for each in self.hosts if each.startswith("*.")}
        return name in self.hosts or any(name.endswith(end) and len(name) > len(end) for end in below)

    def allows_origin(self, header: bytes) -> bool:
        """header: the raw Origin header; browsers write origins in one way."""
        origin = header.decode("latin-1").lower()
        return any(each in (ANY, origin) or bool(_pattern(each).fullmatch(origin)) for each in self.origins)

    @property
    def allows_any_page(self) -> bool:
        """True where the answer to one page is right for all."""
        return ANY in self.origins


@lru_cache(64)
def _pattern(origin: str) -> re.Pattern[str]:
    """ "http://localhost:*" fits every port, "https://*.example.org" every name below."""
    return re.compile("[a-z0-9._-]+".join(re.escape(part) for part in origin.split(ANY)))
