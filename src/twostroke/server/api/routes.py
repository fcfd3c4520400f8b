"""Every path of the public API, with the endpoints whose answers take no step of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twostroke.server.answering.routes import Endpoint, task_routes
from twostroke.server.api.adapter_routes import adapter_routes
from twostroke.server.api.changed.headers import said_of
from twostroke.server.api.llama import routes as llama
from twostroke.server.api.messages_request import count_tokens
from twostroke.server.api.model_list import model_list, one_model
from twostroke.server.api.ollama import routes as ollama
from twostroke.server.api.responses_request import OF_ITEMS, input_tokens
from twostroke.server.api.sse import line_json
from twostroke.server.api.tokens import detokenize, tokenize, tokenizer_info
from twostroke.server.attached.routes import text_routes
from twostroke.server.attached.tool_routes import tool_routes
from twostroke.server.document.openapi import openapi_document
from twostroke.server.errors import HttpProblem, unknown_request
from twostroke.server.gate.body import reading
from twostroke.server.gate.image_desk import read_with_images
from twostroke.server.parts import ServerParts, Telemetry
from twostroke.server.serving import Serving
from twostroke.server.slots.routes import slot_routes
from twostroke.server.stored.chat_routes import chat_routes
from twostroke.server.stored.routes import stored_routes
from twostroke.server.telemetry.explanations import explanation_of
from twostroke.server.telemetry.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from twostroke.images.eyes import Looks


def routes_of(parts: ServerParts) -> list[Route]:
    """Returns every path of the public API: all but the web page and its live view of the engine."""
    serving, admission = parts.serving, parts.admission
    return [
        *task_routes(parts),
        *stored_routes(admission, serving.stored),
        *chat_routes(admission, serving.chats),
        Route("/v1/messages/count_tokens", _read(parts, partial(_counted, count_tokens, {})), methods=["POST"]),
        Route("/v1/responses/input_tokens", _read(parts, partial(_counted, input_tokens, OF_ITEMS)), methods=["POST"]),
        Route("/tokenize", _read(parts, tokenize), methods=["POST"]),
        Route("/detokenize", _read(parts, detokenize), methods=["POST"]),
        Route("/apply-template", _read(parts, llama.apply_template), methods=["POST"]),
        Route("/props", _constant(partial(llama.props, serving)), methods=["GET"]),
        Route("/slots", _slots(serving), methods=["GET"]),
        *slot_routes(parts),
        *text_routes(admission),
        *tool_routes(admission, serving.tool_servers),
        Route("/tokenizer_info", _constant(lambda: tokenizer_info(serving)), methods=["GET"]),
        Route("/openapi.json", _constant(lambda: openapi_document(serving, parts.access)), methods=["GET"]),
        *adapter_routes(serving.adapters, admission),
        *_ollama_routes(parts),
        Route("/v1/models", _models(serving), methods=["GET"]),
        Route("/v1/models/{name:path}", _model(serving), methods=["GET"]),
        Route("/v1/requests/{name:path}/explain", _explain(parts.telemetry), methods=["GET"]),
        Route("/health", _ready(parts), methods=["GET"]),
        Route("/ready", _ready(parts), methods=["GET"]),
        Route("/live", _live(serving), methods=["GET"]),
        Route("/metrics", _metrics(parts.telemetry), methods=["GET"]),
        Route("/version", _version(serving), methods=["GET"]),
    ]


def _ollama_routes(parts: ServerParts) -> list[Route]:
    """Returns the paths of Ollama's API that do not run the model."""
    told = ollama.facts_paths().items()
    facts = [Route(path, _constant(partial(make, parts.serving)), methods=["GET"]) for path, make in told]
    read = [Route(path, _read(parts, make), methods=["POST"]) for path, make in ollama.reading_paths().items()]
    return [*facts, *read, *ollama.refusing_routes()]


def _read(parts: ServerParts, make: Callable[[bytes, Serving], dict[str, Any] | Response]) -> Endpoint:
    """Returns an endpoint whose answer depends on the body alone; the answer is made in a worker thread."""
    serving, admission = parts.serving, parts.admission

    def answer(body: bytes, looks: Looks | None) -> Response:
        made = make(body, serving if looks is None else replace(serving, looks=looks))
        return made if isinstance(made, Response) else _json(made)

    async def endpoint(request: Request) -> Response:
        async with reading(request, parts.admission) as body:
            whole = partial(answer, body)
            return await read_with_images(admission.lanes, admission.desk, serving.eyes, body, whole)

    return endpoint


def _constant(make: Callable[[], dict[str, Any]]) -> Endpoint:
    async def endpoint(_request: Request) -> Response:
        return _json(make())

    return endpoint


def _slots(serving: Serving) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return _json(llama.slots(request.query_params, serving))

    return endpoint


def _counted(count: Any, more: dict[str, str], body: bytes, serving: Serving) -> Response:
    tokens, warnings = count(body, serving)
    response = _json({"input_tokens": tokens, **more})
    response.raw_headers += said_of((), warnings)
    return response


def _models(serving: Serving) -> Endpoint:
    async def endpoint(_request: Request) -> Response:
        return _json(model_list(serving))

    return endpoint


def _model(serving: Serving) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return _json(one_model(request.path_params["name"], serving))

    return endpoint


def _explain(telemetry: Telemetry) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        asked = request.path_params["name"]
        answer = await asyncio.to_thread(explanation_of, asked, telemetry.explain)
        if answer is None:
            raise HttpProblem(unknown_request(asked))
        return _json(answer)

    return endpoint


def _ready(parts: ServerParts) -> Endpoint:
    """Returns the readiness check for load balancers: 200 while requests are taken."""

    async def endpoint(_request: Request) -> Response:
        if not parts.serving.engine.alive:
            return _json({"status": "stopped"}, 503)
        return _json({"status": "draining"}, 503) if parts.admission.door.draining else _json({"status": "ok"})

    return endpoint


def _live(serving: Serving) -> Endpoint:
    """Returns the liveness check: 200 while the engine runs, also while draining."""

    async def endpoint(_request: Request) -> Response:
        return _json({"status": "ok"}) if serving.engine.alive else _json({"status": "stopped"}, 503)

    return endpoint


def _metrics(telemetry: Telemetry) -> Endpoint:
    async def endpoint(_request: Request) -> Response:
        return Response(telemetry.metrics.text(), headers={"content-type": CONTENT_TYPE})

    return endpoint


def _version(serving: Serving) -> Endpoint:
    async def endpoint(_request: Request) -> Response:
        return _json({"version": serving.version})

    return endpoint


def _json(value: object, status: int = 200) -> Response:
    return Response(line_json(value), status, media_type="application/json")
