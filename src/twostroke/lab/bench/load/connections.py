"""The connections of a load run: kept ones, and fresh ones for requests whose kept connection was lost."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2

CONNECT_S = 10.0
KEEPALIVE_S = 60.0


@dataclass(frozen=True, slots=True)
class Connections:
    """The two clients of a run. kept: uses connections again. fresh: opens a connection for each request."""

    kept: httpx2.AsyncClient
    fresh: httpx2.AsyncClient


@contextlib.asynccontextmanager
async def open_connections(api_key: str | None, silence_s: float) -> AsyncIterator[Connections]:
    """Opens connections for any number of requests at once. silence_s: how many seconds a server may send nothing."""
    async with _client(api_key, silence_s, None) as kept, _client(api_key, silence_s, 0) as fresh:
        yield Connections(kept, fresh)


def _client(api_key: str | None, silence_s: float, most_kept: int | None) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        headers={"authorization": f"Bearer {api_key}"} if api_key else {},
        timeout=httpx2.Timeout(silence_s, connect=CONNECT_S, pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=most_kept, keepalive_expiry=KEEPALIVE_S),
        trust_env=False,
    )
