"""A short way for the bytes of an answer from the app to the connection, in addition to ASGI's `send`.

`send` is a coroutine in every layer between an app and its server. A stream that sends each token as it is made spends
more time in those calls than with its bytes. No layer changes the bytes of a body, so they may go past the layers.

In the other direction, the connection tells the app that its client has stopped reading; the generation of the answer
may then be paused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from starlette.types import Scope

_KEY, _PARK_KEY = "twostroke.body_writer", "twostroke.park"
Park = Callable[[bool], None]
"""A function that pauses the generation of one answer (True) or resumes it (False). The connection calls it when the
client has stopped reading while other requests wait, and when the client reads again. Repeated calls are allowed."""


class BodyWriter(Protocol):
    """Writes a part of the body of one answer. The answer's head has already been sent through `send`."""

    @property
    def takes_now(self) -> bool:
        """True when `write` may be called: the client reads, and the body has not ended."""

    def write(self, data: bytes) -> None:
        """Write a part of the body, as `send` would with the same bytes and more to come. data: not empty."""


def give_body_writer(scope: Scope, writer: BodyWriter) -> None:
    """Put the writer into the scope of a request."""
    scope.setdefault("extensions", {}).setdefault(_KEY, writer)


def body_writer_of(scope: Scope) -> BodyWriter | None:
    """Returns the object that writes the body of this request's answer straight to the connection. Returns None where
    the HTTP server has no such object; the body must then go through ASGI's `send`."""
    found: BodyWriter | None = scope.get("extensions", {}).get(_KEY)
    return found


def give_park(scope: Scope, park: Park) -> None:
    """Puts a function into the request's scope with which the connection pauses the generation of the answer when its
    client stops reading."""
    scope.setdefault("extensions", {})[_PARK_KEY] = park


def park_of(scope: Scope) -> Park | None:
    """Returns the function that pauses the answer of this request; None when no answer is being generated."""
    found: Park | None = scope.get("extensions", {}).get(_PARK_KEY)
    return found
