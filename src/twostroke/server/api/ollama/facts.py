"""The facts about models that Ollama's clients ask for: /api/tags, /api/ps, /api/show, /api/version."""

from __future__ import annotations

from typing import Any

from twostroke.server.api.infill import infill_tokens
from twostroke.server.api.ollama.names import served_name, shown_name
from twostroke.server.api.ollama.requests import OllamaNamed
from twostroke.server.api.ollama.shapes import stamp
from twostroke.server.gate.decode import decode
from twostroke.server.serving import Serving
from twostroke.types.pooling import Task
from twostroke.types.sampling.open_values import filled

VERSION = "0.12.6"
"""The version of Ollama whose API is implemented. Clients compare it, and accept only digits and dots."""
FOREVER = "2318-01-01T00:00:00.000000000Z"
_PARAMETERS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repeat_penalty",
}


def version(serving: Serving) -> dict[str, Any]:
    """Returns the API's version, and this server's own version."""
    return {"version": VERSION, "twostroke": serving.version}


def tags(serving: Serving) -> dict[str, Any]:
    """Returns all models and adapters."""
    return {"models": [_listed(name, serving) for name in (*serving.names, *serving.adapters.names())]}


def running(serving: Serving) -> dict[str, Any]:
    """Returns the same list as `tags`: every served model is loaded, and stays loaded."""
    shown = {"expires_at": FOREVER, "size_vram": 0, "context_length": serving.context_tokens}
    return {"models": [{**each, **shown} for each in tags(serving)["models"]]}


def show(body: bytes, serving: Serving) -> dict[str, Any]:
    """Returns all known facts about one model. Raises HttpProblem (404)."""
    request = decode(body, OllamaNamed)
    name = served_name(request.asked, serving)
    card = serving.card
    template = "" if serving.template is None else serving.template.source
    family = card.family or "unknown"
    info = {
        "general.architecture": family,
        "general.basename": name,
        "general.parameter_count": card.parameters,
        "general.file_type": 0,
        **{f"{family}.{key}": value for key, value in card.shape.items()},
        f"{family}.context_length": serving.context_tokens,
    }
    return {
        "license": card.license,
        "modelfile": f"FROM {shown_name(name)}\n",
        "parameters": _parameters(serving),
        "template": template,
        "system": "",
        "details": _details(serving),
        "messages": [],
        "model_info": info,
        "capabilities": capabilities(serving),
        "modified_at": stamp(serving.created_s),
    }


def capabilities(serving: Serving) -> list[str]:
    """Returns what the model can do, in Ollama's words."""
    if serving.task is not Task.GENERATE:
        return ["embedding"] if serving.task is Task.EMBED else []
    tools = [] if serving.template is None else ["tools"]  # tools are described in words when the template shows none
    vision = [] if serving.eyes is None else ["vision"]
    insert = [] if infill_tokens(serving) is None else ["insert"]
    return ["completion", *insert, *tools, *vision, *(["thinking"] if serving.format.thinks else [])]


def _listed(name: str, serving: Serving) -> dict[str, Any]:
    return {
        "name": shown_name(name),
        "model": shown_name(name),
        "modified_at": stamp(serving.created_s),
        "size": serving.card.num_bytes,
        "digest": serving.card.digest,
        "details": _details(serving),
        "capabilities": capabilities(serving),
    }


def bare(name: str) -> dict[str, Any]:
    """Returns the entry of a model of which nothing has been read yet."""
    details = {"parent_model": "", "format": "", "family": "", "families": [], "parameter_size": ""}
    return {
        "name": shown_name(name),
        "model": shown_name(name),
        "modified_at": stamp(0),
        "size": 0,
        "digest": "0" * 64,
        "details": {**details, "quantization_level": "", "context_length": 0, "embedding_length": 0},
        "capabilities": [],
    }


def _details(serving: Serving) -> dict[str, Any]:
    card = serving.card
    family = card.family or "unknown"
    return {
        "parent_model": "",
        "format": card.file,
        "family": family,
        "families": [family],
        "parameter_size": card.parameter_size,
        "quantization_level": card.quantization or "unknown",
        "context_length": serving.context_tokens,
        "embedding_length": card.shape.get("embedding_length", 0),
    }


def _parameters(serving: Serving) -> str:
    """Returns one line for each parameter. Some clients accept only a name, spaces and one word."""
    defaults = filled({}, serving.defaults)
    found = [(theirs, defaults[ours]) for ours, theirs in _PARAMETERS.items() if ours in defaults]
    return "\n".join(f"{name:<30} {value}" for name, value in found)
