"""The part of GET /openapi.json that is Ollama's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from twostroke.server.api.json_schema import COUNT, OBJECT, TEXT, list_of, object_of
from twostroke.server.api.ollama.requests import (
    OllamaChat,
    OllamaEmbed,
    OllamaEmbeddings,
    OllamaGenerate,
    OllamaNamed,
)
from twostroke.server.api.ollama.routes import refused_paths
from twostroke.types.pooling import Task

_STATUSES = (400, 401, 403, 404, 405, 408, 413, 422, 500, 501, 503)
OLLAMA_ERROR = object_of(error=TEXT)
_LINE = {"model": TEXT, "created_at": TEXT, "done": {"type": "boolean"}, "done_reason": TEXT}
_LISTED = object_of(
    name=TEXT, model=TEXT, modified_at=TEXT, size=COUNT, digest=TEXT, details=OBJECT, capabilities=list_of(TEXT)
)
OLLAMA_ANSWERS: dict[str, Any] = {
    "OllamaChatAnswer": object_of(**_LINE, message=OBJECT),
    "OllamaGenerateAnswer": object_of(**_LINE, response=TEXT),
    "OllamaVectors": object_of(model=TEXT, embeddings=list_of(list_of({"type": "number"}))),
    "OllamaVector": object_of(embedding=list_of({"type": "number"})),
    "OllamaShown": object_of(
        license=TEXT,
        modelfile=TEXT,
        parameters=TEXT,
        template=TEXT,
        details=OBJECT,
        model_info=OBJECT,
        capabilities=list_of(TEXT),
        modified_at=TEXT,
    ),
    "OllamaPulled": object_of(status=TEXT),
    "OllamaList": object_of(models=list_of(_LISTED)),
    "OllamaVersion": object_of(version=TEXT),
    "OllamaError": OLLAMA_ERROR,
}
_POSTS: dict[str, tuple[type[msgspec.Struct], str, str, Task | None]] = {
    "/api/chat": (OllamaChat, "OllamaChatAnswer", "Answer a conversation, in Ollama's form.", Task.GENERATE),
    "/api/generate": (OllamaGenerate, "OllamaGenerateAnswer", "Answer a prompt, in Ollama's form.", Task.GENERATE),
    "/api/embed": (OllamaEmbed, "OllamaVectors", "Make vectors of texts, in Ollama's form.", Task.EMBED),
    "/api/embeddings": (OllamaEmbeddings, "OllamaVector", "Make a vector, in Ollama's form.", Task.EMBED),
    "/api/show": (OllamaNamed, "OllamaShown", "What is known of a model.", None),
    "/api/pull": (OllamaNamed, "OllamaPulled", "Whether a model is here.", None),
}
_GETS = {
    "/api/version": ("OllamaVersion", "The version of Ollama's API."),
    "/api/tags": ("OllamaList", "The models served."),
    "/api/ps": ("OllamaList", "The models loaded."),
}
_LINES = ("/api/chat", "/api/generate", "/api/pull")


def ollama_paths(task: Task, reference: str) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Returns the paths of a server for this task, and the schemas that they name. reference: the place of the schemas,
    with {name} in it."""
    kinds = [kind for kind, _, _, _ in _POSTS.values()]
    found, schemas = msgspec.json.schema_components(kinds, ref_template=reference)
    paths: dict[str, Any] = {}
    for (path, (_, answer, summary, own)), request in zip(_POSTS.items(), found, strict=True):
        served = own in (None, task)
        said = _said(answer, summary, reference, lines=path in _LINES) if served else {}
        shown: dict[str, Any] = request if served else {}
        body = {"required": served, "content": {"application/json": {"schema": shown}}}
        paths[path] = {
            "post": {"summary": summary, "requestBody": body, "responses": {**said, **_errors(reference)}}
        }
    for path, (answer, summary) in _GETS.items():
        said = _said(answer, summary, reference, lines=False)
        paths[path] = {"get": {"summary": summary, "responses": {**said, **_errors(reference)}}}
    for path in refused_paths():
        refused = {"summary": "Not done by this server: 501.", "responses": _errors(reference)}
        paths[path] = {"get": refused, "post": refused, "delete": refused}
    return paths, {**schemas, **OLLAMA_ANSWERS}


def _said(answer: str, summary: str, reference: str, *, lines: bool) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": reference.format(name=answer)}}}
    if lines:
        content["application/x-ndjson"] = {"schema": {"description": "A line for each piece."}}
    return {"200": {"description": summary, "content": content}}


def _errors(reference: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": reference.format(name="OllamaError")}}}
    return {str(status): {"description": "An error.", "content": content} for status in _STATUSES}
