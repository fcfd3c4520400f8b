"""GET /v1/models: the model that is served, and its adapters.

Knows: names, the model object of OpenAI and of Anthropic.
Must not know: engines.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twostroke.server.errors import HttpProblem, unknown_model
from twostroke.server.parts import ServerParts

ARITHMETIC = ("weights", "kv_format", "key_factors")
"""The settings that decide the bits of an answer. key_factors: the digest of calibrated keys, or none."""


def model_list(parts: ServerParts) -> dict[str, Any]:
    """The page of all names."""
    names = [parts.served_name, *parts.adapters.names()]
    page = {"has_more": False, "first_id": names[0], "last_id": names[-1]}
    return {"object": "list", "data": [_model_object(name, parts) for name in names], **page}


def one_model(name: str, parts: ServerParts) -> dict[str, Any]:
    """Raises HttpProblem (404)."""
    check_model(name, parts)
    return _model_object(name, parts)


def check_model(name: str, parts: ServerParts) -> None:
    """Raises HttpProblem (404)."""
    if name != parts.served_name and name not in parts.adapters.names():
        raise HttpProblem(unknown_model(name, parts.served_name))


def adapter_of(name: str, parts: ServerParts) -> str | None:
    """The adapter that the name of a model means; None for the model itself."""
    return None if name == parts.served_name else name


def _model_object(name: str, parts: ServerParts) -> dict[str, object]:
    """A model with the keys of OpenAI's and of Anthropic's model object; an adapter names its model as vLLM does."""
    settings = parts.view.about.get("settings", {})
    since = datetime.fromtimestamp(parts.created_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "id": name,
        "object": "model",
        "created": parts.created_s,
        "owned_by": "twostroke",
        "max_model_len": parts.context_tokens,
        "has_chat_template": parts.template is not None,
        **{name: settings[name] for name in ARITHMETIC if name in settings},
        "type": "model",
        "display_name": name,
        "created_at": since,
        **({} if name == parts.served_name else {"parent": parts.served_name}),
    }
