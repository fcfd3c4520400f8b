"""The paths of /v1/conversations."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twostroke.server.admission import Admission
from twostroke.server.gate.decode import decode
from twostroke.server.stored.conversations import AskedConversation, AskedItems
from twostroke.server.stored.route_parts import json_of, page_of, with_body, with_stored
from twostroke.server.stored.work import StoredWork


def conversation_routes(admission: Admission, stored: StoredWork | None) -> list[Route]:
    """Returns the routes. Without a folder for stored work, each answer explains how to get one."""
    name, items = "/v1/conversations/{name}", "/v1/conversations/{name}/items"
    return [
        Route("/v1/conversations", with_body(admission, stored, _read, _create), methods=["POST"]),
        Route(name, with_stored(stored, _get), methods=["GET"]),
        Route(name, with_body(admission, stored, _read, _rename), methods=["POST"]),
        Route(name, with_stored(stored, _delete), methods=["DELETE"]),
        Route(items, with_stored(stored, _items), methods=["GET"]),
        Route(items, with_body(admission, stored, lambda body: decode(body, AskedItems), _add), methods=["POST"]),
        Route(f"{items}/{{item}}", with_stored(stored, _item), methods=["GET"]),
        Route(f"{items}/{{item}}", with_stored(stored, _delete_item), methods=["DELETE"]),
    ]


def _read(body: bytes) -> AskedConversation:
    return decode(body, AskedConversation)


async def _create(_request: Request, client: str, stored: StoredWork, asked: AskedConversation) -> Response:
    return json_of((await stored.conversations.create(client, asked)).shown())


async def _get(request: Request, client: str, stored: StoredWork) -> Response:
    return json_of((await stored.conversations.get(client, request.path_params["name"])).shown())


async def _rename(request: Request, client: str, stored: StoredWork, asked: AskedConversation) -> Response:
    return json_of((await stored.conversations.rename(client, request.path_params["name"], asked)).shown())


async def _delete(request: Request, client: str, stored: StoredWork) -> Response:
    name = request.path_params["name"]
    await stored.conversations.remove(client, name)
    return json_of({"id": name, "object": "conversation.deleted", "deleted": True})


async def _items(request: Request, client: str, stored: StoredWork) -> Response:
    found = (await stored.conversations.get(client, request.path_params["name"])).items
    ordered = found if request.query_params.get("order", "desc") == "asc" else found[::-1]
    return json_of(page_of(ordered, request, lambda item: str(item.get("id", ""))))


async def _add(request: Request, client: str, stored: StoredWork, asked: AskedItems) -> Response:
    made = await stored.conversations.add(client, request.path_params["name"], asked.items)
    ends = made[0]["id"], made[-1]["id"]
    return json_of({"object": "list", "data": made, "first_id": ends[0], "last_id": ends[1], "has_more": False})


async def _item(request: Request, client: str, stored: StoredWork) -> Response:
    names = request.path_params
    return json_of(await stored.conversations.item(client, names["name"], names["item"]))


async def _delete_item(request: Request, client: str, stored: StoredWork) -> Response:
    names = request.path_params
    return json_of((await stored.conversations.remove_item(client, names["name"], names["item"])).shown())
