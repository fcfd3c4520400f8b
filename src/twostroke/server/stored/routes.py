"""The paths of stored work: /v1/responses and the stored responses, /v1/files, /v1/batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from twostroke.server.admission import Admission
from twostroke.server.api.fields.disk_wish import FIELD, IN_MEMORY, Sender, sender_of
from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.body import reading
from twostroke.server.gate.decode import decode
from twostroke.server.stored.batches import AskedBatch, Batch
from twostroke.server.stored.conversation_routes import conversation_routes
from twostroke.server.stored.event_log import EventLog
from twostroke.server.stored.files import FileFacts, file_json, read_form
from twostroke.server.stored.kept_answer import KeptAnswer
from twostroke.server.stored.message_routes import message_batch_routes
from twostroke.server.stored.route_parts import Endpoint, json_of, page_of, with_body, with_stored
from twostroke.server.stored.work import StoredWork
from twostroke.types.reading.decoders import json_decoder

Prepare = Callable[[bytes, Sender], Awaitable[Response]]
"""A function that makes the answer to a body from this sender. It raises an error for a wrong body."""
_BODY = json_decoder(dict[str, Any])


def responses_endpoint(admission: Admission, stored: StoredWork | None, prepare: Prepare) -> Endpoint:
    """Returns the endpoint POST /v1/responses. prepare: makes the answer to a body and stores nothing."""

    async def endpoint(request: Request) -> Response:
        sender = sender_of(request.scope)
        client = sender.client
        async with reading(request, admission) as body:
            asked = _asked(body)
            if stored is None or asked is None or asked.get("store") is False:
                return await prepare(body, sender)
            if sender.memory_only:
                asked[FIELD] = IN_MEMORY  # background work has no request headers
            joined, record = await stored.responses.joined({**asked, "store": True}, client)
            written = msgspec.json.encode(joined)
            answer = await prepare(written, sender)
            if asked.get("background"):
                begun = await stored.responses.begin(joined, record, client)
                if asked.get("stream"):
                    return _events(await stored.responses.log(client, begun["id"]), -1)
                return json_of(begun)
            return KeptAnswer(answer, record, stored.responses, client)

    return endpoint


def stored_routes(admission: Admission, stored: StoredWork | None) -> list[Route]:
    """Returns the routes for stored responses, files, batches and conversations: all but POST /v1/responses. Where the
    server stores nothing, each answer explains how to change that."""
    name = "/v1/responses/{name}"
    return [
        Route(name, with_stored(stored, _get_response), methods=["GET"]),
        Route(name, with_stored(stored, _delete_response), methods=["DELETE"]),
        Route(f"{name}/cancel", with_stored(stored, _cancel_response), methods=["POST"]),
        Route(f"{name}/input_items", with_stored(stored, _input_items), methods=["GET"]),
        Route("/v1/files", with_stored(stored, _list_files), methods=["GET"]),
        Route("/v1/files", _upload(admission, stored), methods=["POST"]),
        Route("/v1/files/{name}", with_stored(stored, _get_file), methods=["GET"]),
        Route("/v1/files/{name}", with_stored(stored, _delete_file), methods=["DELETE"]),
        Route("/v1/files/{name}/content", with_stored(stored, _content), methods=["GET"]),
        Route("/v1/batches", with_stored(stored, _list_batches), methods=["GET"]),
        Route("/v1/batches", with_body(admission, stored, _asked_batch, _create_batch), methods=["POST"]),
        Route("/v1/batches/{name}", with_stored(stored, _get_batch), methods=["GET"]),
        Route("/v1/batches/{name}/cancel", with_stored(stored, _cancel_batch), methods=["POST"]),
        *conversation_routes(admission, stored),
        *message_batch_routes(admission, stored),
    ]


def _asked_batch(body: bytes) -> AskedBatch:
    return decode(body, AskedBatch)


def _upload(admission: Admission, stored: StoredWork | None) -> Endpoint:
    async def make(request: Request, client: str, stored: StoredWork) -> Response:
        async with reading(request, admission) as body:
            sent = await admission.lanes.run(len(body), read_form, request.headers.get("content-type", ""), body)
        return json_of(file_json(await stored.files.add(client, sent)))

    return with_stored(stored, make)


async def _create_batch(_request: Request, client: str, stored: StoredWork, asked: AskedBatch) -> Response:
    return json_of(msgspec.to_builtins(await stored.batches.create(client, asked)))


async def _get_response(request: Request, client: str, stored: StoredWork) -> Response:
    name = request.path_params["name"]
    if request.query_params.get("stream") != "true":
        return json_of((await stored.responses.get(client, name)).response)
    after = request.query_params.get("starting_after", "-1")
    if not (after == "-1" or (after.isascii() and after.isdigit())):
        raise HttpProblem(Problem(400, "starting_after must be a sequence_number.", param="starting_after"))
    return _events(await stored.responses.log(client, name), int(after[:18]))


def _events(log: EventLog, after: int) -> Response:
    return StreamingResponse(log.follow(after), media_type="text/event-stream", headers={"cache-control": "no-cache"})


async def _delete_response(request: Request, client: str, stored: StoredWork) -> Response:
    name = request.path_params["name"]
    await stored.responses.remove(client, name)
    return json_of({"id": name, "object": "response", "deleted": True})


async def _cancel_response(request: Request, client: str, stored: StoredWork) -> Response:
    return json_of(await stored.responses.cancel(client, request.path_params["name"]))


async def _input_items(request: Request, client: str, stored: StoredWork) -> Response:
    found = await stored.responses.get(client, request.path_params["name"])
    items = [*found.before, *found.items]
    if request.query_params.get("order", "desc") != "asc":
        items.reverse()
    return json_of(page_of(items, request, lambda item: str(item.get("id", ""))))


async def _list_files(request: Request, client: str, stored: StoredWork) -> Response:
    files: list[FileFacts] = await stored.files.listed(client, request.query_params.get("purpose"))
    return json_of(page_of([file_json(each) for each in files], request, lambda each: str(each["id"])))


async def _get_file(request: Request, client: str, stored: StoredWork) -> Response:
    return json_of(file_json(await stored.files.get(client, request.path_params["name"])))


async def _delete_file(request: Request, client: str, stored: StoredWork) -> Response:
    name = request.path_params["name"]
    await stored.files.remove(client, name)
    return json_of({"id": name, "object": "file", "deleted": True})


async def _content(request: Request, client: str, stored: StoredWork) -> Response:
    data = await stored.files.content(client, request.path_params["name"])
    return Response(data, media_type="application/octet-stream")


async def _list_batches(request: Request, client: str, stored: StoredWork) -> Response:
    batches: list[Batch] = await stored.batches.listed(client)
    return json_of(page_of([msgspec.to_builtins(each) for each in batches], request, lambda each: str(each["id"])))


async def _get_batch(request: Request, client: str, stored: StoredWork) -> Response:
    return json_of(msgspec.to_builtins(await stored.batches.get(client, request.path_params["name"])))


async def _cancel_batch(request: Request, client: str, stored: StoredWork) -> Response:
    return json_of(msgspec.to_builtins(await stored.batches.cancel(client, request.path_params["name"])))


def _asked(body: bytes) -> dict[str, Any] | None:
    """Returns the body as an object; None for a body that is no JSON object, which is refused later."""
    try:
        return _BODY.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
