"""GET /openapi.json: the requests and answers of this server, from the same types that read the requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from twostroke.server.adapters import LoadRequest, UnloadRequest
from twostroke.server.admission import Access
from twostroke.server.api.adapter_routes import LOAD_PATH, UNLOAD_PATH
from twostroke.server.api.llama.requests import LlamaCompletion, LlamaInfill
from twostroke.server.api.llama.retrieval import LlamaEmbedding
from twostroke.server.api.messages_request import CountRequest, MessagesRequest
from twostroke.server.api.responses_request import ResponsesRequest
from twostroke.server.api.retrieval_request import EmbeddingRequest, RerankRequest, ScoreRequest
from twostroke.server.api.schema import ChatRequest, CompletionRequest
from twostroke.server.api.tokens import DetokenizeRequest, TokenizeRequest
from twostroke.server.document.openapi_answers import ANSWERS, DETAILS, ERROR, MESSAGES_ERROR, STREAMED
from twostroke.server.document.openapi_engine import ENGINE_ANSWERS, TRACE_QUERY, frames_query
from twostroke.server.document.openapi_ollama import ollama_paths
from twostroke.server.document.openapi_stored import stored_paths
from twostroke.server.live.routes import MAX_FRAMES
from twostroke.server.serving import Serving
from twostroke.types.pooling import Task

_REF = "#/components/schemas/{name}"
_GENERATING: dict[str, tuple[type[msgspec.Struct], str, str, bool]] = {
    "/v1/chat/completions": (ChatRequest, "ChatCompletion", "Answer a conversation.", True),
    "/v1/completions": (CompletionRequest, "Completion", "Continue texts.", True),
    "/v1/responses": (ResponsesRequest, "Response", "Answer a conversation, in items.", True),
    "/v1/messages": (MessagesRequest, "Message", "Answer a conversation, in Anthropic's form.", True),
    "/completion": (LlamaCompletion, "LlamaAnswer", "Continue a text, in llama.cpp's form.", True),
    "/completions": (LlamaCompletion, "LlamaAnswer", "The same.", True),
    "/infill": (LlamaInfill, "LlamaAnswer", "Write what stands between two texts, in llama.cpp's form.", True),
}
_EMBEDDING: dict[str, tuple[type[msgspec.Struct], str, str, bool]] = {
    "/v1/embeddings": (EmbeddingRequest, "Embeddings", "Make vectors of texts.", False),
    "/embedding": (LlamaEmbedding, "LlamaVectors", "Make vectors of texts, in llama.cpp's form.", False),
    "/embeddings": (LlamaEmbedding, "LlamaVectors", "The same.", False),
}
_RERANKING: dict[str, tuple[type[msgspec.Struct], str, str, bool]] = {
    "/v1/rerank": (RerankRequest, "Ranks", "Rank documents for a query.", False),
    **{path: (RerankRequest, "Ranks", "The same.", False) for path in ("/rerank", "/reranking", "/v1/reranking")},
    "/v1/score": (ScoreRequest, "Scores", "Score pairs of texts.", False),
}
_BY_TASK = {Task.GENERATE: _GENERATING, Task.EMBED: _EMBEDDING, Task.RERANK: _RERANKING}
_REQUESTS: dict[str, tuple[type[msgspec.Struct], str, str, bool]] = {
    "/v1/messages/count_tokens": (CountRequest, "TokenCount", "Count a conversation's tokens.", False),
    "/v1/responses/input_tokens": (ResponsesRequest, "ItemTokenCount", "Count the tokens of items.", False),
    "/tokenize": (TokenizeRequest, "Tokens", "Text to token ids.", False),
    "/apply-template": (TokenizeRequest, "Rendered", "The prompt that messages make.", False),
    "/detokenize": (DetokenizeRequest, "Detokenized", "Token ids to text.", False),
}
_GETS = {
    "/v1/models": ("ModelList", "The models served."),
    "/props": ("Props", "What a request that says nothing gets, in llama.cpp's form."),
    "/slots": ("Slots", "The places for sequences that run at once, in llama.cpp's form."),
    "/tokenizer_info": ("TokenizerInfo", "Special tokens."),
    "/health": ("Health", "200 while requests are taken."),
    "/ready": ("Health", "The same."),
    "/live": ("Health", "200 while the engine runs, draining included."),
    "/version": ("Version", "The server's version."),
}


def openapi_document(serving: Serving, access: Access) -> dict[str, Any]:
    """Returns the document, in OpenAPI 3.1."""
    served = _BY_TASK[serving.task] | _REQUESTS
    kinds = [kind for kind, _, _, _ in served.values()]
    references, requests = msgspec.json.schema_components([*kinds, LoadRequest, UnloadRequest], ref_template=_REF)
    for name, properties in DETAILS.items():
        own = requests.get(name, {}).get("properties", {})
        own |= {key: schema for key, schema in properties.items() if key in own}
    paths: dict[str, Any] = {}
    for (path, (_, answer, summary, streams)), reference in zip(served.items(), references, strict=False):
        error = "MessagesError" if path.startswith("/v1/messages") else "Error"
        body = {"required": True, "content": {"application/json": {"schema": _with_model(reference, path, serving)}}}
        paths[path] = {"post": _operation(summary, answer, error, streams=streams) | {"requestBody": body}}
    for path, (answer, summary) in _GETS.items():
        paths[path] = {"get": _operation(summary, answer, "Error", streams=False)}
    paths.get("/infill", {}).get("post", {}).get("responses", {}).update(_errors("Error", (501,)))  # no infill tokens
    paths["/v1/models/{name}"] = {"get": _operation("One model.", "Model", "Error", streams=False) | _named(serving)}
    explained = _operation("What a request's time went to.", "Explanation", "Error", streams=False)
    paths["/v1/requests/{name}/explain"] = {"get": explained | _named(serving)}
    paths |= _engine_paths() | _adapter_paths()
    for path in (path for own in _BY_TASK.values() for path in own if path not in served):
        paths[path] = {"post": _refused("Another task than the model's.")}
    paths |= stored_paths(_REF, _named(serving))
    paths["/metrics"] = {"get": _text("Prometheus metrics.")}
    of_ollama, their_schemas = ollama_paths(serving.task, _REF)
    paths |= of_ollama
    requests |= their_schemas
    return {
        "openapi": "3.1.0",
        "info": {"title": "Twostroke", "version": serving.version, "license": {"name": "Apache-2.0"}},
        **({"servers": [{"url": access.reach.root_path}]} if access.reach.root_path else {}),
        "paths": paths,
        "components": {
            "schemas": {**requests, **ANSWERS, **ENGINE_ANSWERS, "Error": ERROR, "MessagesError": MESSAGES_ERROR},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}] if access.api_key is not None else [],
    }


def _with_model(reference: Mapping[str, Any], path: str, serving: Serving) -> dict[str, Any]:
    if path.endswith("tokenize"):
        return dict(reference)
    names = [*serving.names, *serving.adapters.names()]
    model = {"const": names[0]} if len(names) == 1 else {"enum": names}
    return {"allOf": [reference, {"type": "object", "properties": {"model": model}}]}


def _operation(summary: str, answer: str, error: str, *, streams: bool) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": _REF.format(name=answer)}}}
    if streams:
        content["text/event-stream"] = {"schema": STREAMED}
    statuses: Sequence[int] = (400, 401, 403, 404, 405, 408, 413, 422, 500, 503)
    return {
        "summary": summary,
        "responses": {"200": {"description": summary, "content": content}, **_errors(error, statuses)},
    }


def _engine_paths() -> dict[str, Any]:
    """Returns OpenAPI's description of the paths from which the live view (the web page of the engine's steps) gets its
    data. Scripts read these paths too."""
    frames = _operation("What the engine does, frame by frame.", "EngineFrame", "Error", streams=False)
    event = {"schema": {**STREAMED, "x-data-schema": {"$ref": _REF.format(name="EngineFrame")}}}
    frames["responses"]["200"]["content"] = {"text/event-stream": event}
    traced = _operation("Steps and requests between two times, for Perfetto.", "EngineTrace", "Error", streams=False)
    return {
        "/v1/engine/about": {"get": _operation("Facts of the engine.", "EngineAbout", "Error", streams=False)},
        "/v1/engine/steps": {"get": {**frames, "parameters": frames_query(MAX_FRAMES)}},
        "/v1/engine/trace": {"get": {**traced, "parameters": TRACE_QUERY}},
    }


def _adapter_paths() -> dict[str, Any]:
    """Returns the paths for loading and unloading adapters, which work when the server allows it."""
    references = msgspec.json.schema_components((LoadRequest, UnloadRequest), ref_template=_REF)[0]
    paths = {}
    for path, summary, schema in zip(
        (LOAD_PATH, UNLOAD_PATH), ("Load an adapter.", "Unload an adapter."), references, strict=True
    ):
        made = _text(summary)
        made["responses"] |= _errors("Error", (400, 404, 408, 413))
        paths[path] = {
            "post": made | {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
        }
    return paths


def _refused(summary: str) -> dict[str, Any]:
    body: dict[str, Any] = {"content": {"application/json": {"schema": {}}}}
    return {"summary": summary, "requestBody": body, "responses": _errors("Error", (400, 401, 403, 405, 500))}


def _text(summary: str) -> dict[str, Any]:
    content = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "summary": summary,
        "responses": {"200": {"description": summary, "content": content}, **_errors("Error", (401, 403, 405, 500))},
    }


def _named(serving: Serving) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "examples": [serving.served_name]}
    return {"parameters": [{"name": "name", "in": "path", "required": True, "schema": schema}]}


def _errors(name: str, statuses: Sequence[int]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REF.format(name=name)}}}
    return {str(status): {"description": "An error.", "content": content} for status in statuses}
