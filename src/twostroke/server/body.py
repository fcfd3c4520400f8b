"""A request's body, read with a cap on its bytes and on the time between its pieces.

Knows: ASGI's receive.
Must not know: what the body means.
"""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from twostroke.server.errors import BODY_TIMEOUT, HttpProblem, body_too_large
from twostroke.server.parts import Limits


async def read_body(request: Request, limits: Limits) -> bytes:
    """All bytes. Raises HttpProblem (413, 408), ClientDisconnect."""
    try:
        async with asyncio.timeout(limits.body_s):
            return await _pieces(request, limits)
    except TimeoutError:
        raise HttpProblem(BODY_TIMEOUT) from None


async def _pieces(request: Request, limits: Limits) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.body_bytes:
        raise HttpProblem(body_too_large(limits.body_bytes))
    pieces: list[bytes] = []
    size_bytes, more = 0, True
    while more:
        async with asyncio.timeout(limits.body_idle_s):
            message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece = message.get("body", b"")
        size_bytes += len(piece)
        if size_bytes > limits.body_bytes:
            raise HttpProblem(body_too_large(limits.body_bytes))
        pieces.append(piece)
        more = message.get("more_body", False)
    return b"".join(pieces)
