"""Reads fields of llama.cpp's requests that mean the same as one of ours: n_predict, repeat_penalty, repeat_last_n. It
also reads -1 for max_tokens, by which clients of llama.cpp and of LM Studio ask for no limit.

(The fields for a form of the answer are in grammar.py: grammar, json_schema, regex, ebnf.)
"""

from __future__ import annotations

from typing import Protocol

from twostroke.types.errors import InvalidRequest

REPEAT_LAST_N = 64
"""The number of last tokens that llama.cpp's repeat_penalty looks at, when repeat_last_n is not set."""
UNLIMITED = (-1, -2)
"""The values of n_predict that mean: up to an end token, or up to the end of the context. In both cases the answer ends
with the context at the latest."""
NO_LIMIT = -1
MAX_PENALTY = 10.0


class LlamaFields(Protocol):
    """The fields of a request that this module reads."""

    max_tokens: int | None
    repetition_penalty: float | None
    repetition_window: int | None
    n_predict: int | None
    repeat_penalty: float | None
    repeat_last_n: int | None


def in_our_fields(request: LlamaFields) -> None:
    """Fill our fields from llama.cpp's. Raises InvalidRequest when both are set and differ."""
    if request.max_tokens == NO_LIMIT:
        request.max_tokens = None
        request.n_predict = NO_LIMIT if request.n_predict is None else request.n_predict
    count = request.n_predict
    if count is not None and count not in UNLIMITED:
        if count < 0:
            raise InvalidRequest(f"n_predict must be at least 0, or -1 for no limit, not {count}.", param="n_predict")
        _only_one("n_predict", count, "max_tokens", request.max_tokens)
        request.max_tokens = count
    penalty = request.repeat_penalty
    if penalty is not None:
        if not 0 < penalty <= MAX_PENALTY:
            raise InvalidRequest(
                f"repeat_penalty must be above 0 and at most {MAX_PENALTY:g}, not {penalty}.", param="repeat_penalty"
            )
        _only_one("repeat_penalty", penalty, "repetition_penalty", request.repetition_penalty)
        request.repetition_penalty = penalty
    window = REPEAT_LAST_N if request.repeat_last_n is None and penalty is not None else request.repeat_last_n
    if window is None:
        return
    if window < -1:
        raise InvalidRequest(
            f"repeat_last_n must be at least 0, or -1 for all tokens, not {window}.", param="repeat_last_n"
        )
    request.repetition_window = None if window == -1 else window


def unlimited(request: LlamaFields) -> bool:
    """Returns True when the answer may fill the context."""
    return request.max_tokens is None and request.n_predict in UNLIMITED


def _only_one(name: str, value: float, ours: str, other: float | None) -> None:
    if other is not None and other != value:
        raise InvalidRequest(f"{name} is {value:g} and {ours} is {other:g}.", param=name, fix="Send one.")
