"""GET /v1/models: the model that is served, and its adapters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twostroke.server.errors import HttpProblem, unknown_model
from twostroke.server.serving import Serving

ARITHMETIC = ("weights", "kv_format", "key_factors")
"""The settings that decide the bits of an answer. key_factors: the digest of calibrated keys, or none."""
LATEST = ":latest"
_HOSTS = ("hf.co/", "huggingface.co/")


def model_list(serving: Serving) -> dict[str, Any]:
    """Returns the list of all names that requests may use, as one page."""
    names = [*serving.names, *serving.adapters.names()]
    page = {"has_more": False, "first_id": names[0], "last_id": names[-1]}
    return {"object": "list", "data": [_model_object(name, serving) for name in names], **page}


def one_model(name: str, serving: Serving) -> dict[str, Any]:
    """Returns the model object of this name. Raises HttpProblem (404)."""
    return _model_object(asked_model(name, serving), serving)


def asked_model(name: str | None, serving: Serving) -> str:
    """Returns the name that a request asks for; the model itself when the request has no name. Raises HttpProblem
    (404)."""
    return serving.served_name if not name else _known(name, serving)


def plain_name(name: str) -> str:
    """Returns the part of a name that distinguishes models: case and the ending of GGUF files do not count, and
    `:latest` is the same as no tag."""
    found = name.strip().lower().removesuffix(LATEST).removesuffix(".gguf")
    for host in _HOSTS:
        found = found.removeprefix(host)
    return found


def _known(name: str, serving: Serving) -> str:
    """Returns the name of the model or adapter that is meant. Raises HttpProblem (404)."""
    known = (*serving.names, *serving.adapters.names())
    if name in known:
        return name
    wanted = plain_name(name)
    found = next((each for each in known if plain_name(each) == wanted), None)
    if found is None:
        raise HttpProblem(unknown_model(name, serving.served_name))
    return found


def adapter_of(name: str | None, serving: Serving) -> str | None:
    """Returns the adapter that the name of a model means; None for the model itself."""
    found = asked_model(name, serving)
    return None if found in serving.names else found


def _context_names(tokens: int) -> dict[str, object]:
    """Returns the length of the context, in tokens, under each name that clients read: vLLM's, then OpenRouter's, LM
    Studio's, Groq's and llama.cpp's. A client that finds no name that it knows assumes a length that is too small or
    too large."""
    return {
        "max_model_len": tokens,
        "context_length": tokens,
        "top_provider": {"context_length": tokens, "max_completion_tokens": tokens},
        "max_context_length": tokens,
        "loaded_context_length": tokens,
        "context_window": tokens,
        "meta": {"n_ctx": tokens},
    }


def _model_object(name: str, serving: Serving) -> dict[str, object]:
    """Returns a model with the keys of OpenAI's and of Anthropic's model object. An adapter names its model as in vLLM.
    """
    settings = serving.view.about.get("settings", {})
    since = datetime.fromtimestamp(serving.created_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "id": name,
        "object": "model",
        "created": serving.created_s,
        "owned_by": "twostroke",
        **_context_names(serving.context_tokens),
        "has_chat_template": serving.template is not None,
        **{name: settings[name] for name in ARITHMETIC if name in settings},
        "type": "model",
        "display_name": name,
        "created_at": since,
        **({} if name in serving.names else {"parent": serving.served_name}),
    }
