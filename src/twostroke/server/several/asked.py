"""The parts of a request that are read before its model is known: the model's name, and how long the model should stay.
"""

from __future__ import annotations

from typing import Any

import msgspec

from twostroke.server.api.fields.keep_alive import keep_alive_s
from twostroke.server.gate.decode import decoded
from twostroke.types.reading.decoders import json_decoder


class AskedModel(msgspec.Struct, frozen=True):
    """The fields of all APIs that concern the model. name: Ollama's older name of the field. ttl: LM Studio's
    keep_alive. messages, prompt, input: any of them means that there is something to compute. keep_s: None when no time
    is given."""

    model: Any = None
    name: Any = None
    keep_alive: Any = None
    ttl: Any = None
    messages: Any = None
    prompt: Any = None
    input: Any = None

    @property
    def asked(self) -> str:
        """The model's name; "" when none is given."""
        found = self.model or self.name
        return found if isinstance(found, str) else ""

    @property
    def is_bare(self) -> bool:
        """True when the request asks only for the model, with nothing to compute."""
        return not (self.messages or self.prompt or self.input)

    @property
    def keep_s(self) -> float | None:
        """The seconds that the model should stay; None when no time is given. Raises InvalidRequest for a wrong time.
        """
        kept = keep_alive_s(self.keep_alive)
        return keep_alive_s(self.ttl, "ttl") if kept is None else kept


_asked = json_decoder(AskedModel)


def asked_of(body: bytes) -> AskedModel:
    """Returns the fields of a body that concern the model. They are empty when the body is no JSON object, which the
    route then reports itself."""
    try:
        return decoded(body, _asked)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return AskedModel()
