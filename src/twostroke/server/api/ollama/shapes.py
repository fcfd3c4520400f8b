"""Answers in Ollama's form: lines of JSON, each an object, the last of which has `done` and the durations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twostroke.server.api.logprobs import chat_logprobs
from twostroke.server.api.shape import Block, ChatTurn, Closed, Counts, Grew, Step
from twostroke.server.api.shapes.messages import arguments_of
from twostroke.server.api.sse import NDJSON, Event, line_json
from twostroke.server.calls import Call
from twostroke.server.errors import Problem
from twostroke.server.serving import Serving
from twostroke.types.output import Delta, Timings

NS = 1_000_000_000


def stamp(seconds: float) -> str:
    """Returns the time in RFC 3339 in UTC, with nine digits of a second."""
    whole = datetime.fromtimestamp(seconds, UTC)
    return whole.strftime("%Y-%m-%dT%H:%M:%S.") + f"{whole.microsecond:06d}000Z"


def durations(timings: Timings | None) -> dict[str, int]:
    """Returns the durations of Ollama's API in nanoseconds. The time in the queue, and the time in which the client did
    not read, are only in total_duration. load_duration is 0, because the model is loaded before any request is taken.
    """
    total = prompt = answer = 0.0
    if timings is not None and timings.parts is not None:
        parts = timings.parts
        total = parts.total_s
        prompt = parts.encode_s + parts.own_prefill_s + parts.others_prefill_s + parts.recompute_s
        answer = parts.decode_s + parts.host_gap_s + parts.preempted_s
    elif timings is not None and timings.ttft_s is not None and timings.e2e_s is not None:
        total = timings.e2e_s
        prompt, answer = timings.ttft_s - (timings.queue_s or 0.0), timings.e2e_s - timings.ttft_s
    return {
        "total_duration": int(total * NS),
        "load_duration": 0,
        "prompt_eval_duration": int(prompt * NS),
        "eval_duration": int(answer * NS),
    }


class LinesShape:
    """The code that the answers of /api/chat and /api/generate share. Satisfies Shape."""

    written = NDJSON
    closing = b""

    def __init__(self, call: Call, serving: Serving) -> None:
        self._call, self._serving = call, serving
        self._turn = ChatTurn(call, serving.new_id, serving.tokenizer.token_bytes)
        self._end: Delta | None = None
        self._logprobs: list[dict[str, Any]] = []
        self._token_ids: list[int] = []
        self.heartbeat = line_json(self._line(self.said("text", ""))) + b"\n"

    def said(self, kind: str, text: str) -> dict[str, Any]:
        """Returns the fields of a line with more text of this kind: "text" or "reasoning"."""
        raise NotImplementedError

    def called(self, place: int, block: Block) -> dict[str, Any] | None:
        """Returns the fields of a line with a whole tool call; None when this API has no field for tool calls."""
        raise NotImplementedError

    def all_said(self) -> dict[str, Any]:
        """Returns the fields of a whole answer."""
        raise NotImplementedError

    def at_end(self) -> dict[str, Any]:
        """Returns the fields that only this API has in the last line of a stream. The counts of tokens are added to
        them."""
        return {}

    def events(self, _index: int, delta: Delta, counts: Counts) -> list[Event]:
        steps = self._take(delta)
        lines = [self._line(part) for step in steps if (part := self._part(step)) is not None]
        fresh = self._items(delta)
        if fresh:
            lines = lines or [self._line(self.said("text", ""))]
            lines[0]["logprobs"] = fresh
        return [Event(None, line) for line in lines]

    def text_event(self, _index: int, delta: Delta) -> bytes | None:
        """Returns None, so that the caller makes every line with `events`. A template is of no use, because each line
        contains the time at which it is made."""
        return None

    def progress_events(self, news: dict[str, Any]) -> list[Event]:
        """Returns no events, because Ollama's API has none for progress."""
        return []

    def last_events(self, counts: Counts) -> list[Event]:
        return [Event(None, {**self._line(self.said("text", "")), **self._ended(counts)})]

    def problem_events(self, problem: Problem) -> list[Event]:
        return [Event(None, {"error": problem.message})]

    def collect(self, _index: int, delta: Delta) -> None:
        self._take(delta)
        self._logprobs += self._items(delta)

    def whole(self, counts: Counts) -> dict[str, Any]:
        found = {"logprobs": self._logprobs} if self._logprobs else {}
        return {**self._line(self.all_said()), **self._ended(counts), **found}

    def _take(self, delta: Delta) -> list[Step]:
        self._token_ids += delta.token_ids
        if delta.finish_reason is not None:
            self._end = delta
        return self._turn.take(delta)

    def _items(self, delta: Delta) -> list[dict[str, Any]]:
        if self._call.logprobs is None or not delta.logprobs:
            return []
        made = chat_logprobs(delta.logprobs, self._call.logprobs, self._serving.tokenizer)
        found: list[dict[str, Any]] = made["content"]
        return found

    def _part(self, step: Step) -> dict[str, Any] | None:
        if isinstance(step, Grew) and step.block.kind != "call":
            return self.said(step.block.kind, step.text) if step.text else None
        if isinstance(step, Closed) and step.block.kind == "call":
            return self.called(self._turn.made.calls.index(step.block), step.block)
        return None

    def _line(self, part: dict[str, Any]) -> dict[str, Any]:
        made = {"model": self._call.model, "created_at": stamp(self._serving.wall_clock()), **part}
        return {**made, "done": False}

    def _ended(self, counts: Counts) -> dict[str, Any]:
        reason = "length" if self._turn.finish_reason == "length" else "stop"
        return {
            "done": True,
            "done_reason": reason,
            **self.at_end(),
            **durations(None if self._end is None else self._end.timings),
            "prompt_eval_count": self._call.num_prompt_tokens,
            "eval_count": counts.completion,
        }


class OllamaChatShape(LinesShape):
    """The answer of /api/chat: each line has a message, and a tool call is whole in one line."""

    def said(self, kind: str, text: str) -> dict[str, Any]:
        if kind == "reasoning":
            return {"message": {"role": "assistant", "content": "", "thinking": text}}
        return {"message": {"role": "assistant", "content": text}}

    def called(self, place: int, block: Block) -> dict[str, Any] | None:
        return {"message": {"role": "assistant", "content": "", "tool_calls": [_call_of(place, block)]}}

    def all_said(self) -> dict[str, Any]:
        made = self._turn.made
        message: dict[str, Any] = {"role": "assistant", "content": made.text_of("text")}
        if thoughts := made.text_of("reasoning"):
            message["thinking"] = thoughts
        if made.calls:
            message["tool_calls"] = [_call_of(place, block) for place, block in enumerate(made.calls)]
        return {"message": message}


class OllamaGenerateShape(LinesShape):
    """The answer of /api/generate: each line has a piece of the response; the last line also has `context`, the ids of
    all tokens so far."""

    def said(self, kind: str, text: str) -> dict[str, Any]:
        return {"response": "", "thinking": text} if kind == "reasoning" else {"response": text}

    def called(self, place: int, block: Block) -> dict[str, Any] | None:
        """Returns None: a request without tools has no tool calls."""
        return None

    def all_said(self) -> dict[str, Any]:
        made = self._turn.made
        thoughts = made.text_of("reasoning")
        return {"response": made.text_of("text"), **({"thinking": thoughts} if thoughts else {})}

    def at_end(self) -> dict[str, Any]:
        """Returns `context`, the token ids by which a client continues. A request with a raw prompt gets none: its
        client has the whole text."""
        if self._call.asked.raw:
            return {}
        return {"context": [*self._call.prompts[0].token_ids, *self._token_ids]}


def _call_of(place: int, block: Block) -> dict[str, Any]:
    function = {"index": place, "name": block.name, "arguments": arguments_of(block.text)}
    return {"id": block.call_id, "function": function}
