"""What is read of a request before its model is known: the model's name, and how long the model is to stay."""

from __future__ import annotations

from typing import Any

import msgspec

from twostroke.server.api.keep_alive import keep_alive_s
from twostroke.types.decoders import json_decoder


class AskedModel(msgspec.Struct, frozen=True):
    """The fields of all APIs that say something of the model. name: Ollama's older word. ttl: LM Studio's keep_alive.
    messages, prompt, input: is there anything to compute? keep_s: None where nothing is said."""

    model: Any = None
    name: Any = None
    keep_alive: Any = None
    ttl: Any = None
    messages: Any = None
    prompt: Any = None
    input: Any = None

    @property
    def asked(self) -> str:
        """The model's name; "" where none is given."""
        found = self.model or self.name
        return found if isinstance(found, str) else ""

    @property
    def is_bare(self) -> bool:
        """Does it ask for nothing but the model?"""
        return not (self.messages or self.prompt or self.input)

    @property
    def keep_s(self) -> float | None:
        """Raises InvalidRequest where it is no time."""
        kept = keep_alive_s(self.keep_alive)
        return keep_alive_s(self.ttl, "ttl") if kept is None else kept


_asked = json_decoder(AskedModel)


def asked_of(body: bytes) -> AskedModel:
    """What a body says of the model; nothing where it is no JSON object: then the route says so itself."""
    try:
        return _asked.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return AskedModel()
