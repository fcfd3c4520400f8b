"""GET /v1/mcp lists the MCP servers that the web page may use. POST /v1/mcp/{name} passes a message of the page to one
of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twostroke.server.admission import Admission
from twostroke.server.api.sse import line_json
from twostroke.server.attached.tool_servers import Passed, ToolServer, ask, check
from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.body import reading
from twostroke.server.gate.decode import body_kind, decode

AT_ONCE = 8
"""The most messages to MCP servers that may be without an answer at a time, for all clients together."""


@body_kind
class AskedMessage(msgspec.Struct):
    """The body of POST /v1/mcp/{name}."""

    message: dict[str, Any]
    session: str = ""
    version: str = ""


def tool_routes(admission: Admission, servers: Sequence[ToolServer]) -> list[Route]:
    """Returns the routes /v1/mcp and /v1/mcp/{name}. servers: the MCP servers that --mcp names."""
    known, places = {server.name: server for server in servers}, asyncio.Semaphore(AT_ONCE)

    async def listed(_request: Request) -> Response:
        return Response(line_json({"servers": list(known)}), media_type="application/json")

    async def endpoint(request: Request) -> Response:
        server = known.get(request.path_params["name"])
        if server is None:
            text = "There is no such server of tools. Start this server with --mcp NAME=URL for each one."
            raise HttpProblem(Problem(404, text, code="not_found"))
        async with reading(request, admission) as body:
            asked = decode(body, AskedMessage)
        passed = Passed(asked.message, asked.session, asked.version)
        check(passed)
        async with places:
            came = await asyncio.to_thread(ask, server, passed)
        return Response(line_json(msgspec.to_builtins(came)), media_type="application/json")

    return [Route("/v1/mcp", listed, methods=["GET"]), Route("/v1/mcp/{name}", endpoint, methods=["POST"])]
