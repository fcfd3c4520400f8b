"""The paths of stored work: /v1/responses with what is kept of them, /v1/files, /v1/batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twostroke.server.api.sse import line_json
from twostroke.server.errors import HttpProblem, Problem, unknown_response
from twostroke.server.gate.body import reading
from twostroke.server.gate.decode import decode
from twostroke.server.gate.security import client_of
from twostroke.server.parts import ServerParts
from twostroke.server.stored.batches import AskedBatch, Batch
from twostroke.server.stored.files import FileFacts, file_json, read_form
from twostroke.server.stored.kept_answer import KeptAnswer
from twostroke.server.stored.work import StoredWork
from twostroke.types.decoders import json_decoder

Endpoint = Callable[[Request], Awaitable[Response]]
Prepare = Callable[[bytes, str], Awaitable[Response]]
"""(body, client) -> the answer, or what makes it. Raises what is wrong with the body."""
MAX_LISTED, USUAL_LISTED = 100, 20
_BODY = json_decoder(dict[str, Any])


def responses_endpoint(parts: ServerParts, prepare: Prepare) -> Endpoint:
    """POST /v1/responses. prepare: the answer to a body, without anything that is kept."""

    async def endpoint(request: Request) -> Response:
        client = client_of(request.scope)
        async with reading(request, parts.limits, parts.bodies) as body:
            stored, asked = parts.stored, _asked(body)
            if stored is None or asked is None or asked.get("store") is False:
                return await prepare(body, client)
            joined, record = await stored.responses.joined({**asked, "store": True}, client)
            written = msgspec.json.encode(joined)
            answer = await prepare(written, client)
            if asked.get("background"):
                if asked.get("stream"):
                    raise HttpProblem(_background_stream())
                return _json(await stored.responses.begin(joined, record, client))
            return KeptAnswer(answer, record, stored.responses, client)

    return endpoint


def stored_routes(parts: ServerParts) -> list[Route]:
    """The other paths. Without a folder each says how to get one."""
    name = "/v1/responses/{name}"
    return [
        Route(name, _with(parts, _get_response), methods=["GET"]),
        Route(name, _with(parts, _delete_response), methods=["DELETE"]),
        Route(f"{name}/cancel", _with(parts, _cancel_response), methods=["POST"]),
        Route(f"{name}/input_items", _with(parts, _input_items), methods=["GET"]),
        Route("/v1/files", _with(parts, _list_files), methods=["GET"]),
        Route("/v1/files", _upload(parts), methods=["POST"]),
        Route("/v1/files/{name}", _with(parts, _get_file), methods=["GET"]),
        Route("/v1/files/{name}", _with(parts, _delete_file), methods=["DELETE"]),
        Route("/v1/files/{name}/content", _with(parts, _content), methods=["GET"]),
        Route("/v1/batches", _with(parts, _list_batches), methods=["GET"]),
        Route("/v1/batches", _create_batch(parts), methods=["POST"]),
        Route("/v1/batches/{name}", _with(parts, _get_batch), methods=["GET"]),
        Route("/v1/batches/{name}/cancel", _with(parts, _cancel_batch), methods=["POST"]),
    ]


def _with(parts: ServerParts, make: Callable[[Request, str, StoredWork], Awaitable[Response]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        if parts.stored is None:
            raise HttpProblem(_nothing_stored(request))
        return await make(request, client_of(request.scope), parts.stored)

    return endpoint


def _upload(parts: ServerParts) -> Endpoint:
    async def make(request: Request, client: str, stored: StoredWork) -> Response:
        async with reading(request, parts.limits, parts.bodies) as body:
            sent = await parts.lanes.run(len(body), read_form, request.headers.get("content-type", ""), body)
        return _json(file_json(await stored.files.add(client, sent)))

    return _with(parts, make)


def _create_batch(parts: ServerParts) -> Endpoint:
    async def make(request: Request, client: str, stored: StoredWork) -> Response:
        async with reading(request, parts.limits, parts.bodies) as body:
            asked = decode(body, AskedBatch)
        return _json(msgspec.to_builtins(await stored.batches.create(client, asked)))

    return _with(parts, make)


async def _get_response(request: Request, client: str, stored: StoredWork) -> Response:
    if request.query_params.get("stream") == "true":
        raise HttpProblem(Problem(400, "A kept response is not streamed again. Leave stream out.", param="stream"))
    return _json((await stored.responses.get(client, request.path_params["name"])).response)


async def _delete_response(request: Request, client: str, stored: StoredWork) -> Response:
    name = request.path_params["name"]
    await stored.responses.remove(client, name)
    return _json({"id": name, "object": "response", "deleted": True})


async def _cancel_response(request: Request, client: str, stored: StoredWork) -> Response:
    return _json(await stored.responses.cancel(client, request.path_params["name"]))


async def _input_items(request: Request, client: str, stored: StoredWork) -> Response:
    found = await stored.responses.get(client, request.path_params["name"])
    items = [*found.before, *found.items]
    if request.query_params.get("order", "desc") != "asc":
        items.reverse()
    return _json(_page(items, request, lambda item: str(item.get("id", ""))))


async def _list_files(request: Request, client: str, stored: StoredWork) -> Response:
    files: list[FileFacts] = await stored.files.listed(client, request.query_params.get("purpose"))
    return _json(_page([file_json(each) for each in files], request, lambda each: str(each["id"])))


async def _get_file(request: Request, client: str, stored: StoredWork) -> Response:
    return _json(file_json(await stored.files.get(client, request.path_params["name"])))


async def _delete_file(request: Request, client: str, stored: StoredWork) -> Response:
    name = request.path_params["name"]
    await stored.files.remove(client, name)
    return _json({"id": name, "object": "file", "deleted": True})


async def _content(request: Request, client: str, stored: StoredWork) -> Response:
    data = await stored.files.content(client, request.path_params["name"])
    return Response(data, media_type="application/octet-stream")


async def _list_batches(request: Request, client: str, stored: StoredWork) -> Response:
    batches: list[Batch] = await stored.batches.listed(client)
    return _json(_page([msgspec.to_builtins(each) for each in batches], request, lambda each: str(each["id"])))


async def _get_batch(request: Request, client: str, stored: StoredWork) -> Response:
    return _json(msgspec.to_builtins(await stored.batches.get(client, request.path_params["name"])))


async def _cancel_batch(request: Request, client: str, stored: StoredWork) -> Response:
    return _json(msgspec.to_builtins(await stored.batches.cancel(client, request.path_params["name"])))


def _page(items: list[Any], request: Request, name: Callable[[Any], str]) -> dict[str, Any]:
    """A part of a list, after the item that the request names. Raises HttpProblem (400)."""
    text = request.query_params.get("limit", str(USUAL_LISTED))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MAX_LISTED:
        raise HttpProblem(Problem(400, f"limit must be between 1 and {MAX_LISTED}.", param="limit"))
    after = request.query_params.get("after")
    names = [name(item) for item in items]
    begin = names.index(after) + 1 if after in names else 0
    shown = items[begin : begin + int(text)]
    ends = [name(shown[0]), name(shown[-1])] if shown else [None, None]
    more = begin + len(shown) < len(items)
    return {"object": "list", "data": shown, "first_id": ends[0], "last_id": ends[1], "has_more": more}


def _asked(body: bytes) -> dict[str, Any] | None:
    """The body as an object; None where the reader of requests will refuse it."""
    try:
        return _BODY.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _nothing_stored(request: Request) -> Problem:
    if request.url.path.startswith("/v1/responses/"):
        return unknown_response(request.path_params["name"])
    return Problem(
        404,
        "This server keeps no files and no batches. Start it with --stored-work FOLDER.",
        code="not_stored",
    )


def _background_stream() -> Problem:
    return Problem(400, "background cannot be streamed here: ask for the response until it is done.", param="stream")


def _json(value: object) -> Response:
    return Response(line_json(value), media_type="application/json")
