"""POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from twostroke.server.adapters import LoadRequest, ServedAdapters, UnloadRequest
from twostroke.server.admission import Admission
from twostroke.server.gate.body import reading
from twostroke.server.gate.decode import decode

LOAD_PATH, UNLOAD_PATH = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"


def adapter_routes(adapters: ServedAdapters, admission: Admission) -> list[Route]:
    """Returns the two POST routes, which answer with a sentence. Files are read in a thread of their own, not in the
    lanes of short requests."""

    def load(body: bytes) -> str:
        return adapters.load(decode(body, LoadRequest))

    def unload(body: bytes) -> str:
        return adapters.unload(decode(body, UnloadRequest))

    def route(path: str, answer: Callable[[bytes], str]) -> Route:
        async def endpoint(request: Request) -> Response:
            async with reading(request, admission) as body:
                return PlainTextResponse(await asyncio.to_thread(answer, bytes(body)))

        return Route(path, endpoint, methods=["POST"])

    return [route(LOAD_PATH, load), route(UNLOAD_PATH, unload)]
