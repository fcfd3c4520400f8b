"""Ollama's paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twostroke.server.api.fields.keep_alive import keep_alive_s
from twostroke.server.api.ollama.calls import ollama_chat, ollama_generate
from twostroke.server.api.ollama.embed import (
    OllamaEmbeddingsShape,
    OllamaEmbedShape,
    ollama_embed,
    ollama_embeddings,
)
from twostroke.server.api.ollama.facts import running, show, tags, version
from twostroke.server.api.ollama.names import served_name
from twostroke.server.api.ollama.requests import (
    OllamaChat,
    OllamaEmbed,
    OllamaEmbeddings,
    OllamaGenerate,
    OllamaNameAlone,
    OllamaNamed,
)
from twostroke.server.api.ollama.shapes import OllamaChatShape, OllamaGenerateShape, stamp
from twostroke.server.api.sse import line_json
from twostroke.server.calls import Call
from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.decode import decode
from twostroke.server.serving import Serving
from twostroke.types.pooling import Task

Served = tuple[str, Task, Callable[[bytes, Serving], Call | Response], Any, type[msgspec.Struct]]
_ELSEWHERE = {
    "/api/push": "Models are not sent anywhere from here.",
    "/api/me": "There are no accounts here.",
    "/api/signout": "There are no accounts here.",
    "/api/create": "Models are made with `twostroke quantize`, and named with `twostroke serve --served-name`.",
    "/api/copy": "A running server keeps its names: start it with `twostroke serve --served-name`.",
    "/api/delete": "A running server does not remove models: use `twostroke rm NAME`.",
}


def answering_paths() -> list[Served]:
    """Returns Ollama's paths that run the model, each with its task, body reader, answer's Shape and body class."""
    return [
        ("/api/chat", Task.GENERATE, _or_loaded(ollama_chat, _chat_loaded), OllamaChatShape, OllamaChat),
        (
            "/api/generate",
            Task.GENERATE,
            _or_loaded(ollama_generate, _generate_loaded),
            OllamaGenerateShape,
            OllamaGenerate,
        ),
        ("/api/embed", Task.EMBED, _or_loaded(ollama_embed, _no_vectors), OllamaEmbedShape, OllamaEmbed),
        (
            "/api/embeddings",
            Task.EMBED,
            _or_loaded(ollama_embeddings, _no_vector),
            OllamaEmbeddingsShape,
            OllamaEmbeddings,
        ),
    ]


def facts_paths() -> dict[str, Callable[[Serving], dict[str, Any]]]:
    """Returns the paths that describe what is served."""
    return {"/api/version": version, "/api/tags": tags, "/api/ps": running}


def reading_paths() -> dict[str, Callable[[bytes, Serving], dict[str, Any] | Response]]:
    """Returns the paths whose answers depend on the body and do not run the model."""
    return {"/api/show": show, "/api/pull": pull}


def refused_paths() -> list[str]:
    """Returns the paths that this server does not support."""
    return list(_ELSEWHERE)


def refusing_routes() -> list[Route]:
    """Returns the routes that this server does not support. Each answers with the reason."""
    return [
        Route(path, _refuse(why), methods=["GET", "POST", "DELETE"], name=path) for path, why in _ELSEWHERE.items()
    ]


def pull(body: bytes, serving: Serving) -> Response:
    """Answer a pull. For a served model it reports success at once. Raises HttpProblem (501) for any other model:
    nothing is downloaded."""
    request = decode(body, OllamaNamed)
    try:
        served_name(request.asked, serving)
    except HttpProblem as error:
        if error.problem.status != 404:
            raise
        message = f"pull model manifest: this server does not fetch models; use `twostroke pull {request.asked}`"
        raise HttpProblem(Problem(501, message, code="not_supported")) from None
    lines = [{"status": "pulling manifest"}, {"status": "success"}]
    if request.stream is False:
        return Response(line_json(lines[-1]), media_type="application/json")
    return Response(b"".join(line_json(each) + b"\n" for each in lines), media_type="application/x-ndjson")


def _or_loaded(
    read: Callable[[bytes, Serving], Call | None],
    loaded: Callable[[OllamaNameAlone, Serving], dict[str, Any]],
) -> Callable[[bytes, Serving], Call | Response]:
    """Returns a function that reads a body and returns the Call that `read` makes of it. Where `read` returns None, the
    request names only a model to load. The function then returns the JSON that `loaded` makes."""

    def made(body: bytes, serving: Serving) -> Call | Response:
        call = read(body, serving)
        if call is not None:
            return call
        return Response(line_json(loaded(decode(body, OllamaNameAlone), serving)), media_type="application/json")

    return made


def _loaded(request: OllamaNameAlone, serving: Serving) -> dict[str, Any]:
    """Returns the answer to a request to load or unload a model. When the server's only model stays loaded, the answer
    never reports that it was unloaded."""
    reason = "unload" if not serving.stays and keep_alive_s(request.keep_alive) == 0 else "load"
    return {"model": request.model, "created_at": stamp(serving.wall_clock()), "done": True, "done_reason": reason}


def _chat_loaded(request: OllamaNameAlone, serving: Serving) -> dict[str, Any]:
    return {**_loaded(request, serving), "message": {"role": "assistant", "content": ""}}


def _generate_loaded(request: OllamaNameAlone, serving: Serving) -> dict[str, Any]:
    return {**_loaded(request, serving), "response": ""}


def _no_vectors(request: OllamaNameAlone, serving: Serving) -> dict[str, Any]:
    return {"model": request.model, "embeddings": [], "total_duration": 0, "load_duration": 0, "prompt_eval_count": 0}


def _no_vector(request: OllamaNameAlone, serving: Serving) -> dict[str, Any]:
    return {"embedding": []}


def _refuse(why: str) -> Callable[[Request], Any]:
    async def endpoint(_request: Request) -> Response:
        raise HttpProblem(Problem(501, why, code="not_supported"))

    return endpoint
