"""llama.cpp's paths: /completion, /props, /apply-template."""

from __future__ import annotations

from typing import Any

from twostroke.server.api.llama.requests import LlamaCompletion, llama_completion
from twostroke.server.api.llama.shapes import LlamaShape
from twostroke.server.api.model_list import asked_model
from twostroke.server.api.schema import checked_chat
from twostroke.server.api.tokens import TokenizeRequest, chat_of
from twostroke.server.gate.decode import decode
from twostroke.server.parts import ServerParts
from twostroke.server.prompts import prompt_of_chat
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes
from twostroke.types.pooling import Task

ANSWERING = (("/completion", Task.GENERATE, llama_completion, LlamaShape, LlamaCompletion),)
"""The paths that run the model: path, task, reader, shape, kind of body."""


def props(parts: ServerParts) -> dict[str, Any]:
    """What the server would do with a request that says nothing, and what the model is."""
    settings = parts.view.about.get("settings", {})
    template = parts.template
    return {
        "default_generation_settings": {"n_ctx": parts.context_tokens, "params": dict(parts.defaults)},
        "total_slots": settings.get("max_sequences", 1),
        "model_path": parts.served_name,
        "chat_template": "" if template is None else template.source,
        "chat_template_caps": {"supports_tools": template is not None},
        "modalities": {"vision": False, "audio": False},
        "build_info": f"twostroke {parts.version}",
        "is_sleeping": False,
    }


def apply_template(body: bytes, parts: ServerParts) -> dict[str, Any]:
    """The prompt that messages make. Raises InvalidRequest, HttpProblem."""
    request = decode(body, TokenizeRequest)
    asked_model(request.model, parts)
    if request.messages is None:
        raise InvalidRequest("The field 'messages' is missing.", param="messages")
    chat = chat_of(request, parts)
    return {"prompt": prompt_of_chat(checked_chat(chat, parts.limits.json_depth, Notes()), parts).text}
