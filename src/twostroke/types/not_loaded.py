"""The text of an error for a request whose model was not loaded. The server reads the text from the last piece of the
answer and makes a ModelUnavailable with the same code and reason."""

from __future__ import annotations

from twostroke.types.errors import ModelUnavailable

_CODES = ("model_failed", "insufficient_memory", "model_not_loaded")
_MARK = "The model is not loaded"


def not_loaded(code: str, why: str) -> str:
    """Returns the error text for requests that waited for a model that was then not loaded. code: the error code
    that clients see. why: the reason, a sentence for people. `unavailable_of` reads both from the text."""
    return f"{_MARK} ({code if code in _CODES else _CODES[-1]}): {why}"


def unavailable_of(error: str, retry_after_s: float | None) -> ModelUnavailable | None:
    """Returns the error for a text that `not_loaded` made; None for any other text."""
    for code in _CODES:
        mark = f"{_MARK} ({code}): "
        if error.startswith(mark):
            return ModelUnavailable(f"{_MARK}. {error.removeprefix(mark)}", code=code, retry_after_s=retry_after_s)
    return None
