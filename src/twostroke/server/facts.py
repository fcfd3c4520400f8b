"""The facts of one HTTP request when it has ended, for logs and spans. They never contain a prompt's or an answer's
text."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from twostroke.types.output import Timings

KEY = "twostroke.facts"
"""The key under which an ASGI scope holds the request's RequestFacts."""


@dataclass(slots=True)
class RequestFacts:
    """What logs and metrics get of one HTTP request. begin_s, end_s: Unix seconds. trace: the W3C headers traceparent
    and tracestate, as they came.

    The other fields are set only when the model produced an answer. They are timings of the first completion on the
    engine's clock.
    """

    request_id: str
    method: str
    path: str
    begin_s: float
    trace: dict[str, str] = field(default_factory=dict)
    status: int = 0
    end_s: float = 0.0
    response_id: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    finish_reasons: tuple[str, ...] = ()
    timings: Timings | None = None
    ignored_fields: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Listener(Protocol):
    """A function that gets the facts of each HTTP request when the request has ended. It is called on the event loop,
    so it must be quick and raise nothing."""

    def __call__(self, facts: RequestFacts, /) -> None:
        """Called when an HTTP request has ended."""


def facts_of(scope: MutableMapping[str, Any]) -> RequestFacts:
    """Returns the facts of the request that has this ASGI scope. A scope that has not passed the middleware of
    boundary.py gets new facts, which nothing reads."""
    found = scope.get(KEY)
    return found if isinstance(found, RequestFacts) else RequestFacts("", "", "", 0.0)
