"""A request's body, read with a cap on its bytes, on the time between its pieces, and on all bodies together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct
from starlette.requests import ClientDisconnect, Request

from twostroke.server.errors import BODY_TIMEOUT, HttpProblem, body_too_large
from twostroke.server.gate.body_budget import BodyBudget
from twostroke.server.parts import Limits


class _Caps(Struct, frozen=True):
    limits: Limits
    budget: BodyBudget


@asynccontextmanager
async def reading(request: Request, limits: Limits, budget: BodyBudget) -> AsyncIterator[bytes]:
    """All bytes; they count until the block ends. Raises HttpProblem (413, 408, 503), ClientDisconnect."""
    held = bytearray()  # not a list: a byte at a time would take forty
    try:
        try:
            async with asyncio.timeout(limits.body_s):
                await _collect(request, _Caps(limits, budget), held)
        except TimeoutError:
            raise HttpProblem(BODY_TIMEOUT) from None
        yield bytes(held)
    finally:
        budget.give_back(len(held))


async def _collect(request: Request, caps: _Caps, held: bytearray) -> None:
    """Every byte of `held` has been taken from the budget, and no other."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit():
        _check_size(int(declared), caps)
        caps.budget.check(int(declared), 0)
    more = True
    while more:
        async with asyncio.timeout(caps.limits.body_idle_s):
            message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece = message.get("body", b"")
        _check_size(len(held) + len(piece), caps)
        caps.budget.take(len(piece), len(held))
        held += piece
        more = message.get("more_body", False)


def _check_size(size_bytes: int, caps: _Caps) -> None:
    if size_bytes > caps.limits.body_bytes:
        raise HttpProblem(body_too_large(caps.limits.body_bytes))
