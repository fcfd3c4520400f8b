"""A short way for the bytes of an answer from the app to the connection, next to ASGI's `send`.

`send` is a coroutine in every layer between an app and its server. A stream that sends each token as it is made spends
more time in those calls than with its bytes, and no layer changes a body.

The other way, the connection tells the app that its client has stopped reading: then what makes the answer may rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from starlette.types import Scope

_KEY, _PARK_KEY = "twostroke.body_writer", "twostroke.park"
Park = Callable[[bool], None]
"""True: the client has stopped reading, and others wait. False: it goes on. It may be said more than once."""


class BodyWriter(Protocol):
    """Writes a part of the body of one answer, whose head has gone through `send` already."""

    @property
    def takes_now(self) -> bool:
        """True where `write` may be called: the client reads, and the body has not ended."""

    def write(self, data: bytes) -> None:
        """What `send` would do with the same bytes and more to come. data: not empty."""


def give_body_writer(scope: Scope, writer: BodyWriter) -> None:
    """Put it into the scope of a request."""
    scope.setdefault("extensions", {}).setdefault(_KEY, writer)


def body_writer_of(scope: Scope) -> BodyWriter | None:
    """The writer of this request; None where its server has none, and `send` is the only way."""
    found: BodyWriter | None = scope.get("extensions", {}).get(_KEY)
    return found


def give_park(scope: Scope, park: Park) -> None:
    """Put what makes the answer of this request rest into its scope."""
    scope.setdefault("extensions", {})[_PARK_KEY] = park


def park_of(scope: Scope) -> Park | None:
    """What makes the answer of this request rest; None where nothing is being made."""
    found: Park | None = scope.get("extensions", {}).get(_PARK_KEY)
    return found
