"""The names by which others may reach a server, in addition to this machine's own names: none, unless the operator
gives some."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

ANY = "*"


class Reach(Struct, frozen=True):
    """hosts: names that a proxy sends in Host; "*.example.org" is every name below it, "*" any name. origins: the
    origins of pages that may send requests from a browser. In an origin "*" stands for a part of a name or a port; "*"
    alone means any page. root_path: the path under which a proxy shows the server, such as "/llm"; "" for no prefix."""

    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    root_path: str = ""

    def knows_host(self, name: str) -> bool:
        """Returns True for a name that the operator has given, and for any name when all are allowed."""
        return ANY in self.hosts or self.names_host(name)

    def names_host(self, name: str) -> bool:
        """Returns True for a name that the operator has given."""
        below = {each[1:] for each in self.hosts if each.startswith("*.")}
        return name in self.hosts or any(name.endswith(end) and len(name) > len(end) for end in below)

    def allows_origin(self, header: bytes) -> bool:
        """Returns True for an allowed origin. header: the raw Origin header; all browsers write origins in the same
        form."""
        origin = header.decode("latin-1").lower()
        return any(each in (ANY, origin) or bool(_pattern(each).fullmatch(origin)) for each in self.origins)

    @property
    def allows_any_page(self) -> bool:
        """True when pages of every origin are allowed, so that one answer is right for all pages."""
        return ANY in self.origins


@lru_cache(64)
def _pattern(origin: str) -> re.Pattern[str]:
    """Returns the pattern of an origin: "http://localhost:*" fits every port, "https://*.example.org" every name below.
    """
    return re.compile("[a-z0-9._-]+".join(re.escape(part) for part in origin.split(ANY)))
