"""POST /api/pull of a server that downloads models: the download as Ollama's clients follow it, line by line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from twostroke.server.api.model_list import LATEST
from twostroke.server.api.ollama.requests import OllamaNamed
from twostroke.server.api.sse import line_json
from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.body import reading
from twostroke.server.gate.decode import decode
from twostroke.server.several.models import Models
from twostroke.server.several.pulls import Pull

LOOK_S = 0.1
"""The seconds between two checks of how far the download is: at most ten lines a second are sent."""
MANIFEST, SUCCESS = {"status": "pulling manifest"}, {"status": "success"}


def ollama_pull_routes(models: Models) -> list[Route]:
    """Returns the route; no route when the server downloads no models, because each model's own route then answers."""
    pulls = models.pulls
    if pulls is None:
        return []

    async def endpoint(request: Request) -> Response:
        shared = models.shared
        async with reading(request, shared.admission) as body:
            asked = decode(body, OllamaNamed)
        name = (asked.asked or "").removesuffix(LATEST)
        if not name:
            raise HttpProblem(Problem(400, "model is required", param="model"))
        # A wrong name raises before the first byte is sent.
        pull = None if models.find(name) is not None else await pulls.begin(name, anyway=False)
        if asked.stream is False:
            if pull is not None:
                await _ended(pull)
            return Response(line_json(SUCCESS), media_type="application/json")
        return StreamingResponse(_lines(pull), media_type="application/x-ndjson")

    return [Route("/api/pull", endpoint, methods=["POST"])]


async def _lines(pull: Pull | None) -> AsyncIterator[bytes]:
    yield _line(MANIFEST)
    told: dict[str, Any] = {}
    while pull is not None and pull.state == "running":
        await asyncio.sleep(LOOK_S)
        now = _status(pull)
        if pull.total and now != told:
            told = now
            yield _line(now)
    if pull is not None and pull.state != "finished":
        yield _line({"error": pull.why or pull.state})
        return
    yield _line(SUCCESS)


async def _ended(pull: Pull) -> None:
    while pull.state == "running":
        await asyncio.sleep(LOOK_S)
    if pull.state != "finished":
        raise HttpProblem(Problem(500, pull.why or pull.state, code="pull_failed"))


def _status(pull: Pull) -> dict[str, Any]:
    stage = "packing" if pull.stage == "pack" else "pulling"
    return {"status": f"{stage} {pull.name}", "total": pull.total, "completed": pull.done}


def _line(value: dict[str, Any]) -> bytes:
    return line_json(value) + b"\n"
