"""Log probabilities in OpenAI's two formats."""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from typing import Any

from twostroke.text.tokenizer import Tokenizer
from twostroke.types.result import TokenLogprob

LOWEST = -9999.0  # JSON has no -inf; OpenAI sends this number instead


def chat_logprobs(items: Sequence[TokenLogprob], top: int, tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the `logprobs` object of a chat choice: one entry a token, each with `top` alternatives."""
    content = []
    for item in items:
        alternatives = [_chat_token(i, value, tokenizer) for i, value in item.top[:top]]
        content.append({**_chat_token(item.token_id, item.logprob, tokenizer), "top_logprobs": alternatives})
    return {"content": content, "refusal": None}


def _chat_token(token_id: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    raw = tokenizer.token_bytes(token_id)
    return {"token": raw.decode("utf-8", errors="replace"), "logprob": _finite(logprob), "bytes": list(raw)}


class CompletionLogprobs:
    """Builds the `logprobs` object of one completion, piece by piece; text_offset counts characters of the completion's
    text."""

    def __init__(self, top: int, tokenizer: Tokenizer) -> None:
        self._top = top
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset_characters = 0

    def piece(self, items: Sequence[TokenLogprob], *, first_token_id: int | None = None) -> dict[str, Any]:
        """Returns tokens, token_logprobs, top_logprobs and text_offset of these tokens.

        first_token_id: the prompt's first token. It comes before the other tokens, with null for its log probabilities.
        """
        made: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        if first_token_id is not None:
            self._add(made, first_token_id, None, None)
        for item in items:
            self._add(made, item.token_id, _finite(item.logprob), self._top_of(item))
        return made

    def _add(
        self, made: dict[str, list[Any]], token_id: int, logprob: float | None, top: dict[str, float] | None
    ) -> None:
        made["tokens"].append(self._key(token_id))
        made["token_logprobs"].append(logprob)
        made["top_logprobs"].append(top)
        made["text_offset"].append(self._offset_characters)
        if token_id not in self._tokenizer.special_ids:
            self._offset_characters += len(self._utf8.decode(self._tokenizer.token_bytes(token_id)))

    def _top_of(self, item: TokenLogprob) -> dict[str, float]:
        """Returns a map of text to logprob, best first, which always includes the chosen token.

        When two tokens have the same text, the better one stays, so that the largest value is never hidden: clients
        (lm-eval) compare it with the chosen token's for equality.
        """
        found: dict[str, float] = {}
        for token_id, logprob in (*item.top[: self._top], (item.token_id, item.logprob)):
            found.setdefault(self._key(token_id), _finite(logprob))
        return found

    def _key(self, token_id: int) -> str:
        """Returns the token's text. Bytes that are no valid text alone are written as OpenAI writes them, so that they
        stay distinct."""
        raw = self._tokenizer.token_bytes(token_id)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LOWEST
