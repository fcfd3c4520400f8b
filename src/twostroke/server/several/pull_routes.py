"""The paths that download models, when the server was started with --pulls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twostroke.server.api.sse import line_json
from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.body import reading
from twostroke.server.gate.decode import body_kind, decode
from twostroke.server.several.models import Models
from twostroke.server.several.pulls import Pulls

NO_PULLS = Problem(
    403,
    "This server fetches no models. Start it with --pulls, or use `twostroke pull NAME`.",
    "permission_error",
    code="no_pulls",
)


@body_kind
class AskedPull(msgspec.Struct):
    """POST /models. anyway: download the model even if it does not fit or cannot run."""

    model: str
    anyway: bool = False


def pull_routes(models: Models) -> list[Route]:
    """Returns the routes GET /models/fit, /models/pull; POST /models; DELETE /models/pull."""

    def route(path: str, method: str, answered: Callable[[Request, Pulls], Awaitable[dict[str, Any]]]) -> Route:
        async def endpoint(request: Request) -> Response:
            if models.pulls is None:
                raise HttpProblem(NO_PULLS)
            return Response(line_json(await answered(request, models.pulls)), media_type="application/json")

        return Route(path, endpoint, methods=[method])

    async def begin(request: Request, pulls: Pulls) -> dict[str, Any]:
        shared = models.shared
        async with reading(request, shared.admission) as body:
            asked = decode(body, AskedPull)
        await pulls.begin(asked.model, anyway=asked.anyway)
        return {"success": True}

    return [
        route("/models/fit", "GET", _fit),
        route("/models/pull", "GET", _last),
        route("/models/pull", "DELETE", _stop),
        route("/models", "POST", begin),
    ]


async def _fit(request: Request, pulls: Pulls) -> dict[str, Any]:
    return await pulls.fit(request.query_params.get("model", ""))


async def _last(_request: Request, pulls: Pulls) -> dict[str, Any]:
    return {"pull": None if pulls.last is None else msgspec.to_builtins(pulls.last)}


async def _stop(_request: Request, pulls: Pulls) -> dict[str, Any]:
    return {"success": pulls.stop()}
