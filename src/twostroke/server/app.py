"""The routes. `create_app(parts)` gives an ASGI app; it starts and stops nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from twostroke.server.answering.computed_answer import ComputedAnswer
from twostroke.server.answering.stream import Answer
from twostroke.server.api.adapter_routes import adapter_routes
from twostroke.server.api.changed.headers import said_of
from twostroke.server.api.fields.disk_wish import Sender, sender_of, with_disk_wish
from twostroke.server.api.legacy_functions import FunctionChatShape
from twostroke.server.api.llama import routes as llama
from twostroke.server.api.messages_request import MessagesRequest, count_tokens, messages_call
from twostroke.server.api.model_list import model_list, one_model
from twostroke.server.api.ollama import routes as ollama
from twostroke.server.api.responses_request import OF_ITEMS, ResponsesRequest, input_tokens, responses_call
from twostroke.server.api.retrieval_request import (
    EmbeddingRequest,
    RerankRequest,
    ScoreRequest,
    embedding_call,
    rerank_call,
    score_call,
)
from twostroke.server.api.schema import ChatRequest, CompletionRequest
from twostroke.server.api.shape import Shape
from twostroke.server.api.shapes.chat import ChatShape
from twostroke.server.api.shapes.completion import CompletionShape
from twostroke.server.api.shapes.late_refusal import StreamRefused, failed_stream
from twostroke.server.api.shapes.messages import MessagesShape
from twostroke.server.api.shapes.responses import ResponsesShape
from twostroke.server.api.shapes.retrieval import EmbeddingShape, RerankShape, ScoreShape
from twostroke.server.api.sse import line_json
from twostroke.server.api.tokens import detokenize, tokenize, tokenizer_info
from twostroke.server.attached.routes import text_routes
from twostroke.server.attached.tool_routes import tool_routes
from twostroke.server.boundary import Boundary
from twostroke.server.calls import Call
from twostroke.server.document.openapi import openapi_document
from twostroke.server.errors import (
    INVALID,
    HttpProblem,
    Problem,
    other_task,
    problem_of,
    unknown_request,
)
from twostroke.server.gate.body import reading
from twostroke.server.gate.door_metrics import DoorCollector
from twostroke.server.gate.image_desk import read_with_images
from twostroke.server.gate.one_path import OnePath, api_paths, nothing_at
from twostroke.server.gate.origins import Origins
from twostroke.server.gate.security import Gate
from twostroke.server.live.about import kv_facts
from twostroke.server.live.routes import live_routes
from twostroke.server.page_files import page_routes
from twostroke.server.parts import ServerParts, Telemetry
from twostroke.server.prompts import chat_call, completion_call, salted
from twostroke.server.serving import Serving
from twostroke.server.slots.routes import slot_routes
from twostroke.server.stored.chat_routes import chat_routes
from twostroke.server.stored.inner import MayRun, at_any_time
from twostroke.server.stored.responses import PATH as RESPONSES_PATH
from twostroke.server.stored.routes import Prepare, responses_endpoint, stored_routes
from twostroke.server.telemetry.explanations import explanation_of
from twostroke.server.telemetry.history_metrics import HistoryCollector
from twostroke.server.telemetry.metrics import CONTENT_TYPE
from twostroke.types.errors import BackendError, TwostrokeError
from twostroke.types.pooling import Task

if TYPE_CHECKING:
    from twostroke.images.eyes import Looks

Endpoint = Callable[[Request], Awaitable[Response]]
log = logging.getLogger(__name__)


def create_app(parts: ServerParts) -> ASGIApp:
    """Returns the app with its layers around it, from the inside out: Gate (Host, Origin, key), OnePath (one form of
    each path), Boundary (request id, last safety net), Origins (CORS).

    Call once for a ServerParts: it adds the engine's gauges to the metrics registry.
    """
    admission = parts.admission
    parts.telemetry.metrics.registry.register(DoorCollector(admission.door, admission.bodies))
    app = open_app(parts)
    attach_stored(app, parts)
    return guarded(app, parts)


def attach_stored(app: ASGIApp, parts: ServerParts, may_run: MayRun = at_any_time) -> None:
    """Lets stored batches and background responses send their requests to `app`, which does not check API keys.
    may_run: see StoredWork.attach."""
    serving, door = parts.serving, parts.admission.door
    if serving.stored is not None:
        serving.stored.attach(app, lambda: door.draining or not serving.engine.alive, may_run)


def open_app(parts: ServerParts) -> Starlette:
    """Returns all routes of one model, without the check of API keys. Call once for a ServerParts, like create_app."""
    serving, metrics = parts.serving, parts.telemetry.metrics
    metrics.attach(serving.engine.gauges, parts.telemetry.work, serving.adapters.shelf)
    metrics.registry.register(HistoryCollector(serving.view.ledger, metrics.recent))
    metrics.alias(serving.served_name, kv_facts(serving.view.about))
    return routed([*routes_of(parts), *live_routes(parts), *page_routes()])


def routed(routes: Sequence[Route]) -> Starlette:
    """Returns an app of these routes, with errors in the form of each API."""
    app = Starlette(
        routes=routes,
        exception_handlers={
            TwostrokeError: _on_error,
            HttpProblem: _on_error,
            HTTPException: _on_http_exception,
            ClientDisconnect: _on_error,
            Exception: _on_error,
        },
    )
    app.router.redirect_slashes = False
    return app


def guarded(app: ASGIApp, parts: ServerParts) -> ASGIApp:
    """Returns the app inside the layers that `create_app` lists, which check each request and make its errors."""
    access, serving, telemetry = parts.access, parts.serving, parts.telemetry
    gate = OnePath(Gate(app, access.api_key, access.loopback_only, access.reach), access.reach.root_path)
    boundary = Boundary(gate, telemetry.metrics, serving.new_id, telemetry.listeners, serving.wall_clock)
    return Origins(boundary, access.reach)


def routes_of(parts: ServerParts) -> list[Route]:
    """Returns every path of the public API: all but the web page and its live view of the engine."""
    serving, admission = parts.serving, parts.admission
    return [
        *_task_routes(parts),
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


def _task_routes(parts: ServerParts) -> list[Route]:
    """Returns the paths that run the model, each for one task."""
    made = {
        path: _for(task, parts.serving, _generate(parts, read, _answer(shape, task), kind))
        for path, task, read, shape, kind in _answering()
    }
    made[RESPONSES_PATH] = _for(Task.GENERATE, parts.serving, _responses(parts))  # also handles stored responses
    return [Route(path, endpoint, methods=["POST"]) for path, endpoint in made.items()]


def answering_tasks() -> Mapping[str, Task]:
    """Returns the paths that run the model, each with its task."""
    return {path: task for path, task, *_ in _answering()}


def _answering() -> list[tuple[str, Task, Any, Any, Any]]:
    """Returns the paths that run the model, each with its task, body reader, answer's Shape and body class."""
    return [
        ("/v1/chat/completions", Task.GENERATE, chat_call, _chat_shape, ChatRequest),
        ("/v1/completions", Task.GENERATE, completion_call, CompletionShape, CompletionRequest),
        (RESPONSES_PATH, Task.GENERATE, responses_call, ResponsesShape, ResponsesRequest),
        ("/v1/messages", Task.GENERATE, messages_call, MessagesShape, MessagesRequest),
        ("/v1/embeddings", Task.EMBED, embedding_call, EmbeddingShape, EmbeddingRequest),
        ("/v1/rerank", Task.RERANK, rerank_call, RerankShape, RerankRequest),
        ("/v1/score", Task.RERANK, score_call, ScoreShape, ScoreRequest),
        *llama.ANSWERING,
        *ollama.answering_paths(),
    ]


def _generate(
    parts: ServerParts,
    read: Callable[[bytes, Serving], Call | Response],
    answer: Callable[[Call, ServerParts], Response],
    kind: type[msgspec.Struct],
) -> Endpoint:
    prepare = _prepared(parts, read, answer, kind)

    async def endpoint(request: Request) -> Response:
        async with reading(request, parts.admission) as body:
            return await prepare(body, sender_of(request.scope))

    return endpoint


def _prepared(
    parts: ServerParts,
    read: Callable[[bytes, Serving], Call | Response],
    answer: Callable[[Call, ServerParts], Response],
    kind: type[msgspec.Struct],
) -> Prepare:
    """Returns a function that makes the answer for a body; the body is read in a worker thread."""

    serving, admission = parts.serving, parts.admission

    def checked(body: bytes, sender: Sender, looks: Looks | None) -> Call | Response:
        ignored = serving.fields.ignored(body, kind)
        try:
            call = read(body, serving if looks is None else replace(serving, looks=looks))
            if isinstance(call, Response):
                return call
            call = with_disk_wish(call, body, sender)
            return replace(call, ignored_fields=ignored + call.ignored_fields)
        except StreamRefused as refused:
            return failed_stream(refused, serving)

    async def prepare(body: bytes, sender: Sender) -> Response:
        read_it = partial(checked, body, sender)
        found = await read_with_images(admission.lanes, admission.desk, serving.eyes, body, read_it)
        return found if isinstance(found, Response) else answer(salted(found, sender.client), parts)

    return prepare


def _responses(parts: ServerParts) -> Endpoint:
    shape = _answer(ResponsesShape, Task.GENERATE)
    prepare = _prepared(parts, responses_call, shape, ResponsesRequest)
    return responses_endpoint(parts.admission, parts.serving.stored, prepare)


def _answer(shape: Any, task: Task) -> Callable[[Call, ServerParts], Response]:
    """Returns a function that makes the HTTP response to a request that was read. shape: makes the object that gives
    the answer the API's form; a WholeShape when the task generates no text."""
    made = Answer if task is Task.GENERATE else ComputedAnswer
    return lambda call, parts: made(call, shape(call, parts.serving), parts)


def _chat_shape(call: Call, serving: Serving) -> Shape:
    return FunctionChatShape(call, serving) if call.turn.legacy_functions else ChatShape(call, serving)


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


def _for(task: Task, serving: Serving, endpoint: Endpoint) -> Endpoint:
    """Returns the endpoint when the model is served for this task, else one that refuses."""

    async def refuse(_request: Request) -> Response:
        raise HttpProblem(other_task(serving.served_name, serving.task, task))

    return endpoint if serving.task is task else refuse


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


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, BackendError):  # such as TokenizerFailed; the answer does not name the cause
        log.error("a request failed: %s", error)
    return problem_of(error).response(request.scope["path"])


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Returns 404 for an unknown path, 405 with Allow for a wrong method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    path, not_allowed = request.scope["path"], f"{request.method} is not allowed at this path."
    messages = {404: nothing_at(path, api_paths(request.app.routes)), 405: not_allowed}
    codes = {404: "not_found", 405: "method_not_allowed"}
    message = messages.get(status, "The request was refused.")
    return Problem(status, message, INVALID, code=codes.get(status), headers=headers).response(path)
