"""How long a client wants its model to stay loaded after the request: Ollama's keep_alive, LM Studio's ttl."""

from __future__ import annotations

from typing import Any

from twostroke.assembly.settings.option_values import parse_keep_alive
from twostroke.types.errors import InvalidRequest


def keep_alive_s(value: Any, param: str = "keep_alive") -> float | None:
    """Returns the seconds; infinity means for ever. Returns None when the value is neither a number nor a text. Raises
    InvalidRequest when it is not a valid time."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return parse_keep_alive(f"{value:f}" if isinstance(value, float) else str(value))
    except ValueError as error:
        raise InvalidRequest(f"{param} is wrong: {error}.", param=param) from None
