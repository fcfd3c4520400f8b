"""The paths of /v1/messages/batches."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twostroke.server.admission import Admission
from twostroke.server.errors import MESSAGES_PATH
from twostroke.server.gate.decode import decode
from twostroke.server.stored.message_batches import AskedMessageBatch
from twostroke.server.stored.route_parts import json_of, page_of, with_body, with_stored
from twostroke.server.stored.work import StoredWork


def message_batch_routes(admission: Admission, stored: StoredWork | None) -> list[Route]:
    """Returns the routes. Without a folder for stored work, each answer explains how to get one."""
    every = MESSAGES_PATH + "/batches"
    one = every + "/{name}"
    return [
        Route(every, with_stored(stored, _list), methods=["GET"]),
        Route(every, with_body(admission, stored, _asked, _create), methods=["POST"]),
        Route(one, with_stored(stored, _get), methods=["GET"]),
        Route(one, with_stored(stored, _delete), methods=["DELETE"]),
        Route(f"{one}/cancel", with_stored(stored, _cancel), methods=["POST"]),
        Route(f"{one}/results", with_stored(stored, _results), methods=["GET"]),
    ]


def _asked(body: bytes) -> AskedMessageBatch:
    return decode(body, AskedMessageBatch)


async def _create(request: Request, client: str, stored: StoredWork, asked: AskedMessageBatch) -> Response:
    return json_of(await stored.message_batches.create(client, asked, _base(request)))


async def _list(request: Request, client: str, stored: StoredWork) -> Response:
    batches = await stored.message_batches.listed(client, _base(request))
    page = page_of(batches, request, lambda batch: str(batch["id"]), after="after_id", before="before_id")
    return json_of({name: value for name, value in page.items() if name != "object"})


async def _get(request: Request, client: str, stored: StoredWork) -> Response:
    return json_of(await stored.message_batches.get(client, request.path_params["name"], _base(request)))


async def _cancel(request: Request, client: str, stored: StoredWork) -> Response:
    return json_of(await stored.message_batches.cancel(client, request.path_params["name"], _base(request)))


async def _delete(request: Request, client: str, stored: StoredWork) -> Response:
    name = request.path_params["name"]
    await stored.message_batches.remove(client, name)
    return json_of({"id": name, "type": "message_batch_deleted"})


async def _results(request: Request, client: str, stored: StoredWork) -> Response:
    lines = await stored.message_batches.results(client, request.path_params["name"])
    return Response(lines, media_type="application/x-jsonl")


def _base(request: Request) -> str:
    return str(request.base_url)
