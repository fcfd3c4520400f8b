"""The paths of /v1/chats, by which the web page stores its chats on a server that was started with --chats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twostroke.server.admission import Admission
from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.body import reading
from twostroke.server.gate.security import client_of
from twostroke.server.stored.chats import NEW, OPTION, StoredChats, checked
from twostroke.server.stored.route_parts import Endpoint, json_of

Answered = Callable[[Request, str, StoredChats], Awaitable[Response]]
"""A function that answers a request of this client from the stored chats. It raises HttpProblem."""
NOT_KEPT = Problem(404, f"This server keeps no chats. Start it with {OPTION} FOLDER.", code="not_stored")


def chat_routes(admission: Admission, kept: StoredChats | None) -> list[Route]:
    """Returns the routes of /v1/chats. kept: the stored chats; None where the server stores none, and each answer
    explains how to change that."""
    one = "/v1/chats/{name}"

    async def put(request: Request, client: str, chats: StoredChats) -> Response:
        async with reading(request, admission) as body:
            data = await admission.lanes.run(len(body), checked, body)
        name = request.path_params["name"]
        revision = await chats.put(client, name, data, _expected(request))
        return json_of({"id": name, "object": "chat", "revision": revision})

    return [
        Route("/v1/chats", _with_chats(kept, _list), methods=["GET"]),
        Route(one, _with_chats(kept, _get), methods=["GET"]),
        Route(one, _with_chats(kept, put), methods=["PUT"]),
        Route(one, _with_chats(kept, _delete), methods=["DELETE"]),
    ]


def _with_chats(kept: StoredChats | None, answered: Answered) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        if kept is None:
            raise HttpProblem(NOT_KEPT)
        return await answered(request, client_of(request.scope), kept)

    return endpoint


def _expected(request: Request) -> str | None:
    """Returns the revision that a write replaces. Raises HttpProblem (400)."""
    if request.headers.get("if-none-match") == NEW:
        return NEW
    asked = request.headers.get("if-match")
    if asked is not None and not (len(asked) > 2 and asked[0] == asked[-1] == '"'):
        raise HttpProblem(Problem(400, "If-Match must be a revision between quotes.", param="if-match"))
    return None if asked is None else asked[1:-1]


async def _list(_request: Request, client: str, chats: StoredChats) -> Response:
    found = await chats.listed(client)
    data = [{"id": name, "object": "chat", "revision": revision} for name, revision in found.items()]
    return json_of({"object": "list", "data": data})


async def _get(request: Request, client: str, chats: StoredChats) -> Response:
    found = await chats.get(client, request.path_params["name"])
    headers = {"etag": f'"{found.revision}"', "cache-control": "no-store"}
    return Response(found.data, media_type="application/json", headers=headers)


async def _delete(request: Request, client: str, chats: StoredChats) -> Response:
    name = request.path_params["name"]
    await chats.remove(client, name)
    return json_of({"id": name, "object": "chat.deleted", "deleted": True})
