"""Reads a request's body, with limits on its bytes, on the time between its pieces, and on all bodies together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from twostroke.server.admission import Admission
from twostroke.server.errors import BODY_TIMEOUT, HttpProblem, Problem, body_too_large

ENCODED = Problem(
    415,
    "The request's body is compressed (Content-Encoding). Send it as it is.",
    code="unsupported_encoding",
    headers={"accept-encoding": "identity", "connection": "close"},
)


@asynccontextmanager
async def reading(request: Request, admission: Admission) -> AsyncIterator[bytes]:
    """Yields the whole body of a request. Its bytes count against the limit for all bodies until the caller's `async
    with` block ends. Raises HttpProblem (415, 413, 408, 503), ClientDisconnect."""
    if request.headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
        raise HttpProblem(ENCODED)
    held = bytearray()  # not a list of pieces: a piece of one byte would take forty bytes
    try:
        try:
            async with asyncio.timeout(admission.limits.body_s):
                await _collect(request, admission, held)
        except TimeoutError:
            raise HttpProblem(BODY_TIMEOUT) from None
        yield bytes(held)
    finally:
        admission.bodies.give_back(len(held))


async def _collect(request: Request, admission: Admission, held: bytearray) -> None:
    """Reads the request's body into `held`. Each byte is taken from the memory budget of bodies before it is stored. So
    the caller gives len(held) bytes back, even after an error."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit():
        _check_size(int(declared), admission)
        admission.bodies.check(int(declared), 0)
    more = True
    while more:
        async with asyncio.timeout(admission.limits.body_idle_s):
            message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece = message.get("body", b"")
        _check_size(len(held) + len(piece), admission)
        admission.bodies.take(len(piece), len(held))
        held += piece
        more = message.get("more_body", False)


def _check_size(size_bytes: int, admission: Admission) -> None:
    if size_bytes > admission.limits.body_bytes:
        raise HttpProblem(body_too_large(admission.limits.body_bytes))
