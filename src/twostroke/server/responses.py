"""Answers in OpenAI's shapes: exactly the required keys, and no chunk that a known client trips over.

Knows: the JSON of both routes, whole and streamed.
Must not know: sockets, the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from twostroke.server.logprobs import CompletionLogprobs, chat_logprobs
from twostroke.server.parts import ServerParts
from twostroke.server.prompts import Call
from twostroke.types.output import Delta
from twostroke.types.result import TokenLogprob


def usage_of(call: Call, completion_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """Token counts: generated ones, shown or not."""
    prompt_tokens = call.num_prompt_tokens
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


class Whole:
    """One choice of an answer that is not streamed, collected."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.logprobs: list[TokenLogprob] = []
        self.finish_reason = ""

    def add(self, delta: Delta) -> None:
        """One more piece."""
        self.texts.append(delta.text)
        self.logprobs.extend(delta.logprobs)
        if delta.finish_reason is not None:
            self.finish_reason = delta.finish_reason.value


class Shape(Protocol):
    """What differs between the two routes."""

    def choice(self, index: int, whole: Whole) -> dict[str, Any]:
        """A finished choice."""

    def chunk(self, index: int, delta: Delta) -> dict[str, Any] | None:
        """A streamed choice, or None where there is nothing to say yet."""

    def envelope(self, choices: Sequence[dict[str, Any]], *, streamed: bool) -> dict[str, Any]:
        """The object around choices."""


class _Envelope:
    def __init__(self, call: Call, parts: ServerParts, whole_kind: str, chunk_kind: str) -> None:
        self.call = call
        self.tokenizer = parts.tokenizer
        self._parts = parts
        self._kinds = {False: whole_kind, True: chunk_kind}

    def envelope(self, choices: Sequence[dict[str, Any]], *, streamed: bool) -> dict[str, Any]:
        """id, object, created, model, system_fingerprint, choices."""
        return {
            "id": self.call.response_id,
            "object": self._kinds[streamed],
            "created": self.call.created_s,
            "model": self._parts.served_name,
            "system_fingerprint": self._parts.fingerprint,
            "choices": list(choices),
        }


class ChatShape(_Envelope):
    """chat.completion and chat.completion.chunk."""

    def __init__(self, call: Call, parts: ServerParts) -> None:
        super().__init__(call, parts, "chat.completion", "chat.completion.chunk")
        self._begun: set[int] = set()

    def choice(self, index: int, whole: Whole) -> dict[str, Any]:
        """index, message, logprobs, finish_reason."""
        return {
            "index": index,
            "message": {"role": "assistant", "content": "".join(whole.texts), "refusal": None},
            "logprobs": self._logprobs(whole.logprobs),
            "finish_reason": whole.finish_reason,
        }

    def chunk(self, index: int, delta: Delta) -> dict[str, Any] | None:
        """The role comes with the first token, never before: clients take the first chunk for the first token."""
        said: dict[str, Any] = {}
        if index not in self._begun:
            if not (delta.token_ids or delta.text or delta.finish_reason):
                return None
            self._begun.add(index)
            said = {"role": "assistant", "content": delta.text}
        elif delta.text:
            said = {"content": delta.text}
        elif delta.finish_reason is None and not (self.call.logprobs is not None and delta.logprobs):
            return None
        return {
            "index": index,
            "delta": said,
            "logprobs": self._logprobs(delta.logprobs) if delta.logprobs else None,
            "finish_reason": None if delta.finish_reason is None else delta.finish_reason.value,
        }

    def _logprobs(self, items: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if self.call.logprobs is None:
            return None
        return chat_logprobs(items, self.call.logprobs, self.tokenizer)


class CompletionShape(_Envelope):
    """text_completion, whole and streamed."""

    def __init__(self, call: Call, parts: ServerParts) -> None:
        super().__init__(call, parts, "text_completion", "text_completion")
        self._logprobs: dict[int, CompletionLogprobs] = {}
        self._begun: set[int] = set()

    def choice(self, index: int, whole: Whole) -> dict[str, Any]:
        """index, text, logprobs, finish_reason."""
        return {
            "index": index,
            "text": self._echo(index) + "".join(whole.texts),
            "logprobs": self._logprobs_of(index, whole.logprobs),
            "finish_reason": whole.finish_reason,
        }

    def chunk(self, index: int, delta: Delta) -> dict[str, Any] | None:
        """As `choice`, for one piece."""
        text = delta.text
        if index not in self._begun and (delta.token_ids or text or delta.finish_reason):
            self._begun.add(index)
            text = self._echo(index) + text
        shows_logprobs = self.call.logprobs is not None and bool(delta.logprobs)
        if not text and delta.finish_reason is None and not shows_logprobs:
            return None
        return {
            "index": index,
            "text": text,
            "logprobs": self._logprobs_of(index, delta.logprobs) if shows_logprobs else None,
            "finish_reason": None if delta.finish_reason is None else delta.finish_reason.value,
        }

    def _echo(self, index: int) -> str:
        return "" if self.call.echoes is None else self.call.echoes[index // self.call.n]

    def _logprobs_of(self, index: int, items: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if self.call.logprobs is None:
            return None
        if index not in self._logprobs:
            self._logprobs[index] = CompletionLogprobs(self.call.logprobs, self.tokenizer)
        return self._logprobs[index].piece(items)
