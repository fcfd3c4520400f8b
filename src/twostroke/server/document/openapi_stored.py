"""The part of GET /openapi.json about stored work and files: responses, conversations, chats, slots, batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twostroke.server.api.json_schema import OBJECT
from twostroke.server.errors import MESSAGES_PATH

_STATUSES = (400, 401, 403, 404, 405, 408, 409, 412, 413, 422, 500, 501, 502, 503, 507)
_PATHS: Mapping[str, Mapping[str, str]] = {
    "/v1/responses/{name}": {"get": "A kept response.", "delete": "Forget a kept response."},
    "/v1/responses/{name}/cancel": {"post": "End a response that runs in the background."},
    "/v1/responses/{name}/input_items": {"get": "The input of a kept response."},
    "/v1/conversations": {"post": "Begin a conversation that is kept."},
    "/v1/conversations/{name}": {
        "get": "A conversation.", "post": "Replace its metadata.", "delete": "Forget a conversation.",
    },
    "/v1/conversations/{name}/items": {"get": "The items of a conversation.", "post": "Add items."},
    "/v1/conversations/{name}/items/{item}": {"get": "An item.", "delete": "Remove an item."},
    "/v1/messages/batches": {"get": "The message batches.", "post": "Run requests of /v1/messages when there is room."},
    "/v1/messages/batches/{name}": {"get": "How far a message batch is.", "delete": "Forget one that has ended."},
    "/v1/messages/batches/{name}/cancel": {"post": "End a message batch."},
    "/v1/messages/batches/{name}/results": {"get": "A line of JSON for each request."},
    "/v1/files": {"get": "The files that are kept.", "post": "Keep a file of requests for a batch, as a form."},
    "/v1/files/{name}": {"get": "What is known of a file.", "delete": "Forget a file."},
    "/v1/files/{name}/content": {"get": "A file."},
    "/slots/{name}": {"post": "Save, restore or erase what a slot holds, in llama.cpp's form."},
    "/v1/texts": {"post": "The text of a PDF file."},
    "/v1/mcp": {"get": "The servers of tools that the page may ask."},
    "/v1/mcp/{name}": {"post": "A message for a server of tools (MCP), and its answer."},
    "/v1/chats": {"get": "The page's chats that are kept, each with its revision."},
    "/v1/chats/{name}": {"get": "A chat, as an export.", "put": "Keep a chat.", "delete": "Forget a chat."},
    "/v1/batches": {"get": "The batches.", "post": "Run the requests of a file when there is room."},
    "/v1/batches/{name}": {"get": "How far a batch is."},
    "/v1/batches/{name}/cancel": {"post": "End a batch."},
}


def stored_paths(reference: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the paths of stored work. reference: the place of the schemas. named: the parameters of a path with a
    name."""
    return {
        path: {
            method: {**_operation(summary, reference.format(name=_error(path))), **(named if "{name}" in path else {})}
            for method, summary in methods.items()
        }
        for path, methods in _PATHS.items()
    }


def _error(path: str) -> str:
    return "MessagesError" if path.startswith(MESSAGES_PATH) else "Error"


def _operation(summary: str, error_reference: str) -> dict[str, Any]:
    """Returns an operation with its errors: 404 without --stored-work, and for chats without --chats; 501 for slots
    without --kv-disk."""
    error = {"application/json": {"schema": {"$ref": error_reference}}}
    errors = {str(status): {"description": "See the error.", "content": error} for status in _STATUSES}
    kinds = ("application/json", "application/octet-stream")
    content = {kind: {"schema": OBJECT if kind == kinds[0] else {}} for kind in kinds}
    return {"summary": summary, "responses": {"200": {"description": summary, "content": content}, **errors}}
