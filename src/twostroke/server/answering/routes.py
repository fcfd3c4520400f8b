"""The paths that run the model, each for one task, and the endpoints that read their bodies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twostroke.server.answering.computed_answer import ComputedAnswer
from twostroke.server.answering.stream import Answer
from twostroke.server.api.fields.disk_wish import Sender, sender_of, with_disk_wish
from twostroke.server.api.legacy_functions import FunctionChatShape
from twostroke.server.api.llama import routes as llama
from twostroke.server.api.messages_request import MessagesRequest, messages_call
from twostroke.server.api.ollama import routes as ollama
from twostroke.server.api.responses_request import ResponsesRequest, responses_call
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
from twostroke.server.calls import Call
from twostroke.server.errors import HttpProblem, other_task
from twostroke.server.gate.body import reading
from twostroke.server.gate.image_desk import read_with_images
from twostroke.server.parts import ServerParts
from twostroke.server.prompts import chat_call, completion_call, salted
from twostroke.server.serving import Serving
from twostroke.server.stored.responses import PATH as RESPONSES_PATH
from twostroke.server.stored.routes import Prepare, responses_endpoint
from twostroke.types.pooling import Task

if TYPE_CHECKING:
    from twostroke.images.eyes import Looks

Endpoint = Callable[[Request], Awaitable[Response]]


def task_routes(parts: ServerParts) -> list[Route]:
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


def _for(task: Task, serving: Serving, endpoint: Endpoint) -> Endpoint:
    """Returns the endpoint when the model is served for this task, else one that refuses."""

    async def refuse(_request: Request) -> Response:
        raise HttpProblem(other_task(serving.served_name, serving.task, task))

    return endpoint if serving.task is task else refuse
