"""The server under load: its address, whether it answers, and the model it serves. Each failure is one clear error."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from twostroke.lab.bench.load.answer import words_of
from twostroke.types.errors import ConfigError

MAX_BODY_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the server under load. model: the id to send in requests. context_tokens: the most tokens of
    prompt and answer together, None where the server gives no number. base: True when the server reports that the model
    has no chat template."""

    base_url: str
    model: str
    context_tokens: int | None
    base: bool = False


def base_url(asked: str) -> str:
    """Returns the address that ends in /v1, for texts such as "localhost:8000" or "http://x/v1/". Raises ConfigError.
    """
    text = asked.strip()
    if "://" not in text:
        text = "http://" + text
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise ConfigError(f"{asked[:80]!r} is no address of a server.", fix="Write one such as http://127.0.0.1:8000.")
    text = text.rstrip("/")
    for route in ("/chat/completions", "/completions", "/models"):
        text = text.removesuffix(route)
    return text if urlsplit(text).path else text + "/v1"


async def find_model(client: httpx2.AsyncClient, address: str, wanted: str | None) -> Facts:
    """Asks the server for its models. Raises ConfigError where no server answers, or it refuses, or it serves another
    model."""
    try:
        reply = await client.get(address + "/models")
    except httpx2.RequestError as error:
        raise not_there(address, error) from None
    if reply.status_code in (404, 405) and wanted is not None:
        return Facts(address, wanted, None)
    if reply.status_code != 200:
        raise refused(address + "/models", reply.status_code, describe(reply.status_code, reply.content))
    models = _models(reply.content)
    if not models:
        if wanted is not None:
            return Facts(address, wanted, None)
        raise ConfigError(
            f"{address}/models lists no model.", why="It may be no OpenAI-compatible server.", fix="Name one: --model."
        )
    names = [str(each["id"]) for each in models]
    chosen = models[0] if wanted is None else models[names.index(_meant(wanted, names))]
    context = chosen.get("max_model_len")
    known = context if isinstance(context, int) and context > 0 else None
    return Facts(address, str(chosen["id"]), known, chosen.get("has_chat_template") is False)


def _meant(wanted: str, names: list[str]) -> str:
    """Returns the served name that is meant: this one, or the only one that differs by case, `.gguf` or `:latest`,
    because servers of files take such names. Raises ConfigError."""
    if wanted in names:
        return wanted
    alike = [name for name in names if _plain(name) == _plain(wanted)]
    if len(alike) != 1:
        raise unknown_model(wanted, names)
    return alike[0]


def _plain(name: str) -> str:
    return name.lower().removesuffix(":latest").removesuffix(".gguf")


def unknown_model(wanted: str, names: list[str]) -> ConfigError:
    """Returns the error for a model that the server does not have; it names the most similar one."""
    near = difflib.get_close_matches(wanted, names, 1, 0.3)
    listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return ConfigError(
        f"The server does not serve {wanted[:80]!r}.",
        why=f"It serves {listed}.",
        fix=f"Try --model {(near or names)[0]}, or leave --model out.",
    )


def not_there(address: str, error: BaseException) -> ConfigError:
    """Returns the error for an address at which no server answers."""
    root = error
    while root.__cause__ is not None or root.__context__ is not None:
        root = root.__cause__ or root.__context__ or root
    return ConfigError(
        f"No server answers at {address}.",
        why=f"{type(root).__name__}: {words_of(str(root)).rstrip('.') or 'no more is known'}.",
        fix="Start one (`twostroke serve`), or check the address.",
    )


def refused(address: str, status: int, said: str) -> ConfigError:
    """Returns the error for an answer that holds no completion. said: the words that `describe` made of it."""
    fixes = {
        401: "Give the key: --api-key, or TWOSTROKE_API_KEY.",
        403: "Give a key that may do this: --api-key, or TWOSTROKE_API_KEY.",
        404: "Check the address; the base of an OpenAI-compatible API ends in /v1.",
        429: "Wait, ask for less (--rate, --concurrency, --warmup 0), or raise the server's limit.",
    }
    return ConfigError(
        f"The server did not answer a first request: {said.rstrip('.')}.",
        why=f"Asked at {address}.",
        fix=fixes.get(status, "Look at the server's log; --body and --respect-eos change what is asked."),
    )


def describe(status: int, body: bytes) -> str:
    """Returns the status and the message of an error, such as "HTTP 429: too many requests"."""
    try:
        value = json.loads(body[:MAX_BODY_BYTES])
    except (ValueError, RecursionError):
        value = body[:200].decode("utf-8", "replace")
    inner = value.get("error", value.get("detail", value)) if isinstance(value, dict) else value
    words = words_of(inner) if inner else ""
    return f"HTTP {status}: {words}" if words else f"HTTP {status}"


def _models(body: bytes) -> list[dict[str, Any]]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return []
    data = value.get("data") if isinstance(value, dict) else None
    return [each for each in data if isinstance(each, dict) and "id" in each] if isinstance(data, list) else []
