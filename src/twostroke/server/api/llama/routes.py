"""llama.cpp's paths: a table of the paths that run the model, and functions that answer the other paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twostroke.server.api.llama.requests import LlamaCompletion, LlamaInfill, llama_completion, llama_infill
from twostroke.server.api.llama.retrieval import LlamaEmbedding, LlamaEmbeddingShape, llama_embedding
from twostroke.server.api.llama.shapes import LlamaShape, sampler_settings
from twostroke.server.api.model_list import asked_model
from twostroke.server.api.retrieval_request import RerankRequest, rerank_call
from twostroke.server.api.schema import checked_chat
from twostroke.server.api.shapes.retrieval import RerankShape
from twostroke.server.api.tokens import TokenizeRequest, chat_of
from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.decode import decode
from twostroke.server.prompts import prompt_of_chat
from twostroke.server.serving import Serving
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes
from twostroke.types.pooling import Task
from twostroke.types.sampling.open_values import filled
from twostroke.types.sampling.sampling_params import SamplingParams

ANSWERING: tuple[tuple[str, Task, Any, Any, Any], ...] = (
    ("/completion", Task.GENERATE, llama_completion, LlamaShape, LlamaCompletion),
    ("/completions", Task.GENERATE, llama_completion, LlamaShape, LlamaCompletion),
    ("/infill", Task.GENERATE, llama_infill, LlamaShape, LlamaInfill),
    ("/embedding", Task.EMBED, llama_embedding, LlamaEmbeddingShape, LlamaEmbedding),
    ("/embeddings", Task.EMBED, llama_embedding, LlamaEmbeddingShape, LlamaEmbedding),
    ("/rerank", Task.RERANK, rerank_call, RerankShape, RerankRequest),
    ("/reranking", Task.RERANK, rerank_call, RerankShape, RerankRequest),
    ("/v1/reranking", Task.RERANK, rerank_call, RerankShape, RerankRequest),
)
"""The paths that run the model: path, task, reader, shape, kind of body."""


def props(serving: Serving) -> dict[str, Any]:
    """Returns the defaults for requests, and facts about the model."""
    settings = serving.view.about.get("settings", {})
    template = serving.template
    return {
        "default_generation_settings": {
            "n_ctx": serving.context_tokens,
            "params": {**sampler_settings(SamplingParams()), **filled({}, serving.defaults)},
        },
        "total_slots": settings.get("max_sequences", 1),
        "model_path": serving.served_name,
        "chat_template": "" if template is None else template.source,
        "chat_template_caps": {"supports_tools": template is not None},
        "modalities": {"vision": serving.eyes is not None, "audio": False},
        "build_info": f"twostroke {serving.version}",
        "is_sleeping": False,
    }


def apply_template(body: bytes, serving: Serving) -> dict[str, Any]:
    """Returns the prompt that the messages make. Raises InvalidRequest, HttpProblem."""
    request = decode(body, TokenizeRequest)
    asked_model(request.model, serving)
    if request.messages is None:
        raise InvalidRequest("The field 'messages' is missing.", param="messages")
    chat = chat_of(request, serving)
    return {"prompt": prompt_of_chat(checked_chat(chat, serving.caps.json_depth, Notes()), serving).text}


def slots(query: Mapping[str, str], serving: Serving) -> list[dict[str, Any]]:
    """Returns one slot for each sequence that may run; the first slots stand for the sequences that run now. Raises
    HttpProblem (503) when no slot is free and the request asks for that."""
    gauges = serving.engine.gauges()
    count = max(gauges.running, int(serving.view.about.get("settings", {}).get("max_sequences") or 1))
    if query.get("fail_on_no_slot") and gauges.running >= count:
        raise HttpProblem(Problem(503, "No slot is free.", "unavailable_error", code="no_slot"))
    return [
        {
            "id": place,
            "id_task": place if place < gauges.running else -1,
            "n_ctx": serving.context_tokens,
            "speculative": False,
            "is_processing": place < gauges.running,
        }
        for place in range(count)
    ]
