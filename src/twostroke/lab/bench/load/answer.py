"""One streamed answer, event by event: when text came, the number of tokens, and how the answer ended."""

from __future__ import annotations

from typing import Any

import msgspec

from twostroke.types.reading.decoders import json_decoder

DONE = b"[DONE]"
MAX_WORDS = 160


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None

    @property
    def has_text(self) -> bool:
        delta = self.delta
        return bool(self.text or (delta and (delta.content or delta.reasoning_content or delta.reasoning)))


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """The token counts that the server reported."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Usage | None = None
    error: Any = None


_chunks = json_decoder(_Chunk)


class Answer:
    """One streamed answer. Call `event` with the data and the time of each event, then `finish`."""

    def __init__(self) -> None:
        self.times_s: list[float] = []
        self.counts: list[int] = []
        self.usage = Usage()
        self.error = ""
        self._counted = 0
        self._ended = False

    def event(self, data: bytes, time_s: float) -> None:
        """Takes one event. After a broken event or an error the answer is not usable; `error` gives the reason."""
        if data.strip() == DONE:
            self._ended = True
            return
        try:
            chunk = _chunks.decode(data)
        except (msgspec.DecodeError, RecursionError):
            self.error = self.error or "an event of the stream is no JSON chunk"
            return
        if chunk.error is not None:
            self.error = self.error or f"error in the stream: {words_of(chunk.error)}"
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.choices:
            self._choice(chunk.choices[0], chunk.usage, time_s)

    def finish(self) -> str:
        """Returns why the answer is not complete; an empty text where it is."""
        return self.error or ("" if self._ended else "the stream ended before its end")

    def _choice(self, choice: _Choice, usage: Usage | None, time_s: float) -> None:
        self._ended = self._ended or choice.finish_reason is not None
        tokens = 1 if choice.has_text else 0
        if tokens and usage is not None and usage.completion_tokens is not None:
            # The server counts the tokens: this chunk also brought the tokens whose text was held back.
            tokens = max(1, usage.completion_tokens - self._counted)
            self._counted = usage.completion_tokens
        self.times_s.append(time_s)
        self.counts.append(tokens)


def words_of(error: Any) -> str:
    """Returns the message of an OpenAI error object, or any other value as text, shortened to MAX_WORDS characters."""
    found = error.get("message", error) if isinstance(error, dict) else error
    text = " ".join(str(found).split())
    return text if len(text) <= MAX_WORDS else text[: MAX_WORDS - 3] + "..."
