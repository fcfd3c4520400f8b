"""Refusals of a server that is overloaded or about to end, each with Retry-After."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping

from twostroke.server.errors import INVALID, SERVER, Problem

RATE = "rate_limit_error"
LEAST_RETRY_S = 0.1
DRAIN_RETRY_S = 1.0
BODY_RETRY_S = 1.0

DEADLINE = Problem(
    504, "The request's deadline passed before its answer was complete.", SERVER, code="deadline_exceeded"
)
BAD_DEADLINE = Problem(
    400, "x-request-timeout-ms must be a whole number of milliseconds above 0.", INVALID, code="invalid_deadline"
)


MOST_TOLD = 1024
"""The most refused calls that are remembered."""


class ToldToReturn:
    """Remembers refused calls whose retry time is still in the future. Each call gets a later time than the calls
    before it. With the same time all of them would retry at once, and nearly all would be refused again. clock: returns
    seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: list[tuple[float, int, int]] = []
        self._requests = self._tokens = 0

    def ahead(self) -> tuple[int, int]:
        """Returns how many completions and prompt tokens the refused calls have whose retry time is still in the
        future."""
        now = self._clock()
        while self._told and self._told[0][0] <= now:
            self._forget()
        return self._requests, self._tokens

    def tell(self, wait_s: float, requests: int, tokens: int) -> None:
        """Adds a call that may retry after wait_s seconds. Once MOST_TOLD calls are remembered, the call with the
        earliest time is forgotten."""
        if len(self._told) == MOST_TOLD:
            self._forget()
        heapq.heappush(self._told, (self._clock() + wait_s, requests, tokens))
        self._requests += requests
        self._tokens += tokens

    def _forget(self) -> None:
        _, requests, tokens = heapq.heappop(self._told)
        self._requests -= requests
        self._tokens -= tokens


def retry_headers(retry_s: float) -> Mapping[str, str]:
    """Returns the headers of a retry: whole seconds, rounded up, for all clients; milliseconds for clients that read
    them."""
    wait_s = max(LEAST_RETRY_S, retry_s)
    return {"retry-after": str(math.ceil(wait_s)), "retry-after-ms": str(math.ceil(1e3 * wait_s))}


def queue_full(what: str, retry_s: float) -> Problem:
    """Returns 503: the server as a whole has no room."""
    return Problem(503, f"Too many {what} are waiting.", SERVER, code="queue_full", headers=retry_headers(retry_s))


def key_limit(what: str, retry_s: float) -> Problem:
    """Returns 429: this key has used its share; others are served."""
    return Problem(429, f"{what} for this API key.", RATE, code="rate_limit_exceeded", headers=retry_headers(retry_s))


def bodies_full() -> Problem:
    """Returns 503: too many bytes are arriving; the rest of this body is not read."""
    headers = {**retry_headers(BODY_RETRY_S), "connection": "close"}
    return Problem(503, "Too many request bodies are being read.", SERVER, code="bodies_full", headers=headers)


def quarantined(crashes: int, left_s: float) -> Problem:
    """Returns 422: the same request would only crash the engine again. Sending it again before the time is over has no
    effect."""
    headers = {"retry-after": str(math.ceil(left_s)), "x-should-retry": "false"}
    message = (
        f"This request was running each of the {crashes} times that the engine crashed; "
        f"it is refused for {math.ceil(left_s)} s. Change the prompt or the parameters."
    )
    return Problem(422, message, INVALID, code="request_quarantined", headers=headers)


def draining() -> Problem:
    """Returns 503: the server finishes its running requests and takes no new ones. Another server may be ready already.
    """
    headers = {**retry_headers(DRAIN_RETRY_S), "connection": "close"}
    return Problem(503, "The server is shutting down.", SERVER, code="draining", headers=headers)
