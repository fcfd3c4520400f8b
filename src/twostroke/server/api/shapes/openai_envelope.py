"""The code that chat completions and completions share: the object around choices, usage, and the end of a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from twostroke.server.api.shape import HEARTBEAT, Counts
from twostroke.server.api.sse import SSE, Event, EventTemplate, new_mark
from twostroke.server.api.timings import timings_of
from twostroke.server.calls import Call
from twostroke.server.errors import Problem
from twostroke.server.serving import Serving
from twostroke.types.output import Delta, Timings

DONE = b"data: [DONE]\n\n"


def usage_of(call: Call, counts: Counts) -> dict[str, Any]:
    """Returns the token counts. All generated tokens count, whether the answer shows them or not."""
    prompt_tokens, images = call.num_prompt_tokens, call.num_image_tokens
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": counts.completion,
        "total_tokens": prompt_tokens + counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached, **({"image_tokens": images} if images else {})},
    }


class Envelope:
    """The part of a Shape that OpenAI's answers share."""

    heartbeat = HEARTBEAT
    written = SSE
    closing = DONE

    def __init__(self, call: Call, serving: Serving, whole_kind: str, chunk_kind: str) -> None:
        self.call = call
        self.tokenizer = serving.tokenizer
        self._serving = serving
        self._took: Timings | None = None
        self._kinds = {False: whole_kind, True: chunk_kind}

    def envelope(self, choices: Sequence[dict[str, Any]], *, streamed: bool) -> dict[str, Any]:
        """Returns the object with id, object, created, model, system_fingerprint, choices."""
        return {
            "id": self.call.response_id,
            "object": self._kinds[streamed],
            "created": self.call.created_s,
            "model": self.call.model,
            "system_fingerprint": self._serving.fingerprint,
            "choices": list(choices),
        }

    def chunk(self, choices: Sequence[dict[str, Any]], counts: Counts) -> Event:
        """Returns one chunk. When usage was asked for, every chunk has the key: null, or the counts so far."""
        made = self.envelope(choices, streamed=True)
        if self.call.delivery.include_usage:
            made["usage"] = self.usage(counts) if self.call.delivery.continuous_usage else None
        return Event(None, made)

    def timed(self, delta: Delta, counts: Counts, events: list[Event]) -> list[Event]:
        """Returns the events of a piece. The last event of an answer has the answer's timings when the request asks for
        them."""
        if self.call.delivery.timings and delta.finish_reason is not None and events:
            events[-1].data["timings"] = timings_of(delta.timings, self.call.num_prompt_tokens, counts)
        return events

    def took(self, delta: Delta) -> None:
        """Remember the timings of an answer that is sent as a whole."""
        self._took = delta.timings or self._took

    def whole_timings(self, counts: Counts) -> dict[str, Any]:
        """Returns the timings of a whole answer; none when the request does not ask for them."""
        if not self.call.delivery.timings:
            return {}
        return {"timings": timings_of(self._took, self.call.num_prompt_tokens, counts)}

    def template(self, choice: Callable[[str, str], dict[str, Any]]) -> EventTemplate | None:
        """Returns a template for chunks with one choice of a text and its log probabilities. Returns None when other
        parts of a chunk change, too."""
        if self.call.delivery.include_usage and self.call.delivery.continuous_usage:
            return None
        marks = new_mark(), new_mark()
        return EventTemplate(self.chunk([choice(*marks)], Counts(0, 0)), *marks)

    def usage(self, counts: Counts) -> dict[str, Any]:
        """Returns the usage of the answer so far."""
        return usage_of(self.call, counts)

    def progress_events(self, news: dict[str, Any]) -> list[Event]:
        """Returns a chunk without choices, for clients that asked for progress."""
        usage = {"usage": None} if self.call.delivery.include_usage else {}
        return [Event(None, {**self.envelope([], streamed=True), **usage, **news})]

    def last_events(self, counts: Counts) -> list[Event]:
        """Returns the usage in a chunk without choices; no events when usage was not asked for."""
        if not self.call.delivery.include_usage:
            return []
        return [Event(None, {**self.envelope([], streamed=True), "usage": self.usage(counts)})]

    def problem_events(self, problem: Problem) -> list[Event]:
        """Returns a chunk with an error, at which OpenAI's clients raise."""
        return [Event(None, msgspec.json.decode(problem.body()))]
