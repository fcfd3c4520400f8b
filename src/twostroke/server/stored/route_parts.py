"""The code that the paths of stored work (responses, files, batches) share: the check that the server stores work,
pages of lists, JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from twostroke.server.admission import Admission
from twostroke.server.api.sse import line_json
from twostroke.server.errors import HttpProblem, Problem, unknown_response
from twostroke.server.gate.body import reading
from twostroke.server.gate.security import client_of
from twostroke.server.stored.work import StoredWork

Asked = TypeVar("Asked", bound=msgspec.Struct)
Endpoint = Callable[[Request], Awaitable[Response]]
Make = Callable[[Request, str, StoredWork], Awaitable[Response]]
"""A function that answers a request of this client from the stored work. It raises HttpProblem."""
MakeOfBody = Callable[[Request, str, StoredWork, Asked], Awaitable[Response]]
MAX_LISTED, USUAL_LISTED = 100, 20


def with_stored(stored: StoredWork | None, make: Make) -> Endpoint:
    """Returns an endpoint that answers with `make`. Where the server stores nothing, it answers with 404 and explains
    how to change that."""

    async def endpoint(request: Request) -> Response:
        if stored is None:
            raise HttpProblem(nothing_stored(request))
        return await make(request, client_of(request.scope), stored)

    return endpoint


def with_body(
    admission: Admission, stored: StoredWork | None, decoded: Callable[[bytes], Asked], make: MakeOfBody[Asked]
) -> Endpoint:
    """Returns an endpoint that reads the request's body and answers with `make`. Where the server stores nothing, it
    answers with 404. decoded: reads the body, and raises HttpProblem (400)."""

    async def read(request: Request, client: str, stored: StoredWork) -> Response:
        async with reading(request, admission) as body:
            asked = await admission.lanes.run(len(body), decoded, body)
        return await make(request, client, stored, asked)

    return with_stored(stored, read)


def page_of(
    items: list[Any], request: Request, name: Callable[[Any], str], *, after: str = "after", before: str | None = None
) -> dict[str, Any]:
    """Returns a page of a list: items after, or before, the item that the request names. Raises HttpProblem (400).

    after, before: the names of these fields of the request.
    """
    text = request.query_params.get("limit", str(USUAL_LISTED))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MAX_LISTED:
        raise HttpProblem(Problem(400, f"limit must be between 1 and {MAX_LISTED}.", param="limit"))
    names, asked = [name(item) for item in items], request.query_params
    begin = names.index(asked[after]) + 1 if asked.get(after) in names else 0
    if before is not None and asked.get(before) in names:
        begin = max(0, names.index(asked[before]) - int(text))
        items = items[: names.index(asked[before])]
    shown = items[begin : begin + int(text)]
    ends = [name(shown[0]), name(shown[-1])] if shown else [None, None]
    more = begin + len(shown) < len(items)
    return {"object": "list", "data": shown, "first_id": ends[0], "last_id": ends[1], "has_more": more}


def nothing_stored(request: Request) -> Problem:
    """Returns the problem of a server that stores nothing, with advice how to change that."""
    if request.url.path.startswith("/v1/responses/"):
        return unknown_response(request.path_params["name"], server_keeps=False)
    return Problem(
        404,
        "This server keeps no conversations, files and batches. Start it with --stored-work FOLDER.",
        code="not_stored",
    )


def json_of(value: object) -> Response:
    """Returns a response with this value as its JSON body."""
    return Response(line_json(value), media_type="application/json")
