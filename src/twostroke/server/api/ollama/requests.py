"""The bodies of Ollama's requests."""

from __future__ import annotations

from typing import Any

import msgspec

from twostroke.server.gate.decode import body_kind


class AnswerRequest(msgspec.Struct, kw_only=True):
    """The fields that /api/generate and /api/chat share. keep_alive: the time that the model should stay loaded. A
    server of one model ignores it, because its model always stays."""

    model: str | None = None
    stream: bool | None = None
    format: Any = None
    options: dict[str, Any] | None = None
    keep_alive: str | float | None = None
    think: bool | str | None = None
    truncate: bool | None = None
    shift: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


@body_kind
class OllamaGenerate(AnswerRequest, kw_only=True):
    """POST /api/generate. context: the token ids of an earlier prompt and answer, which come before the prompt."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    context: list[int] | None = None
    raw: bool | None = None
    images: list[Any] | None = None


@body_kind
class OllamaChat(AnswerRequest, kw_only=True):
    """POST /api/chat."""

    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None


@body_kind
class OllamaEmbed(msgspec.Struct, kw_only=True):
    """POST /api/embed: vectors of unit length."""

    model: str | None = None
    input: str | list[str] | None = None
    truncate: bool | None = None
    dimensions: int | None = None
    options: dict[str, Any] | None = None
    keep_alive: str | float | None = None


@body_kind
class OllamaEmbeddings(msgspec.Struct, kw_only=True):
    """POST /api/embeddings: one vector as the model made it."""

    model: str | None = None
    prompt: str | None = None
    options: dict[str, Any] | None = None
    keep_alive: str | float | None = None


@body_kind
class OllamaNameAlone(msgspec.Struct, kw_only=True):
    """The fields of a request that only asks that its model be loaded, or with keep_alive 0 unloaded."""

    model: str | None = None
    keep_alive: str | float | None = None


@body_kind
class OllamaNamed(msgspec.Struct, kw_only=True):
    """A request that names a model: show, pull, delete."""

    model: str | None = None
    name: str | None = None
    verbose: bool | None = None
    stream: bool | None = None
    insecure: bool | None = None

    @property
    def asked(self) -> str | None:
        """The name, from the new or the old field."""
        return self.model or self.name
