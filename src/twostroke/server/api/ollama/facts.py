"""What Ollama's clients ask of a server's models: /api/tags, /api/ps, /api/show, /api/version."""

from __future__ import annotations

from typing import Any

from twostroke.server.api.infill import infill_tokens
from twostroke.server.api.ollama.names import served_name, shown_name
from twostroke.server.api.ollama.requests import OllamaNamed
from twostroke.server.api.ollama.shapes import stamp
from twostroke.server.gate.decode import decode
from twostroke.server.parts import ServerParts
from twostroke.types.pooling import Task

VERSION = "0.12.6"
"""The version of Ollama whose API is followed: clients compare it, and want digits and dots alone."""
FOREVER = "2318-01-01T00:00:00.000000000Z"
_PARAMETERS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repeat_penalty",
}


def version(parts: ServerParts) -> dict[str, Any]:
    """The API's version, and ours next to it."""
    return {"version": VERSION, "twostroke": parts.version}


def tags(parts: ServerParts) -> dict[str, Any]:
    """All models and adapters."""
    return {"models": [_listed(name, parts) for name in (*parts.names, *parts.adapters.names())]}


def running(parts: ServerParts) -> dict[str, Any]:
    """The same: what is served is loaded, and stays."""
    shown = {"expires_at": FOREVER, "size_vram": 0, "context_length": parts.context_tokens}
    return {"models": [{**each, **shown} for each in tags(parts)["models"]]}


def show(body: bytes, parts: ServerParts) -> dict[str, Any]:
    """Everything that is known of one model. Raises HttpProblem (404)."""
    request = decode(body, OllamaNamed)
    name = served_name(request.asked, parts)
    card = parts.card
    template = "" if parts.template is None else parts.template.source
    family = card.family or "unknown"
    info = {
        "general.architecture": family,
        "general.basename": name,
        "general.parameter_count": card.parameters,
        "general.file_type": 0,
        **{f"{family}.{key}": value for key, value in card.shape.items()},
        f"{family}.context_length": parts.context_tokens,
    }
    return {
        "license": card.license,
        "modelfile": f"FROM {shown_name(name)}\n",
        "parameters": _parameters(parts),
        "template": template,
        "system": "",
        "details": _details(parts),
        "messages": [],
        "model_info": info,
        "capabilities": capabilities(parts),
        "modified_at": stamp(parts.created_s),
    }


def capabilities(parts: ServerParts) -> list[str]:
    """What the model can do, in Ollama's words."""
    if parts.task is not Task.GENERATE:
        return ["embedding"] if parts.task is Task.EMBED else []
    tools = [] if parts.template is None else ["tools"]  # offered in words where the template shows none
    vision = [] if parts.eyes is None else ["vision"]
    insert = [] if infill_tokens(parts) is None else ["insert"]
    return ["completion", *insert, *tools, *vision, *(["thinking"] if parts.format.thinks else [])]


def _listed(name: str, parts: ServerParts) -> dict[str, Any]:
    return {
        "name": shown_name(name),
        "model": shown_name(name),
        "modified_at": stamp(parts.created_s),
        "size": parts.card.num_bytes,
        "digest": parts.card.digest,
        "details": _details(parts),
        "capabilities": capabilities(parts),
    }


def bare(name: str) -> dict[str, Any]:
    """A model of which nothing has been read yet."""
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


def _details(parts: ServerParts) -> dict[str, Any]:
    card = parts.card
    family = card.family or "unknown"
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": family,
        "families": [family],
        "parameter_size": card.parameter_size,
        "quantization_level": card.weights.upper() or "unknown",
        "context_length": parts.context_tokens,
        "embedding_length": card.shape.get("embedding_length", 0),
    }


def _parameters(parts: ServerParts) -> str:
    """One line each; some clients take nothing but a name, spaces and one word."""
    found = [(theirs, parts.defaults[ours]) for ours, theirs in _PARAMETERS.items() if ours in parts.defaults]
    return "\n".join(f"{name:<30} {value}" for name, value in found)
