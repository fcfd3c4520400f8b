"""Responses in OpenAI's form: items with dense indexes, events in the order that its clients accumulate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from twostroke.server.api.logprobs import chat_logprobs
from twostroke.server.api.responses_request import ResponsesRequest, ResponseTool
from twostroke.server.api.shape import Block, Closed, Counts, Grew, Opened, Step, TurnShape
from twostroke.server.api.sse import Event, EventTemplate, new_mark
from twostroke.server.calls import Call
from twostroke.server.errors import Problem
from twostroke.server.serving import Serving
from twostroke.server.stored.items import shown_conversation
from twostroke.types.output import Delta
from twostroke.types.result import TokenLogprob

NO_COUNTS = Counts(0, 0)


class ResponsesShape(TurnShape):
    """One response of /v1/responses, streamed or whole. Satisfies Shape."""

    def __init__(self, call: Call, serving: Serving) -> None:
        super().__init__(call, serving)
        self._number = 0
        self._items: list[TokenLogprob] = []

    def events(self, _index: int, delta: Delta, _counts: Counts) -> list[Event]:
        made: list[Event] = []
        if not self._begun:
            self._begun = True
            for kind in ("response.created", "response.in_progress"):
                made.append(self._event(kind, response=self._response("in_progress", None)))
        self._items += delta.logprobs
        fresh = self._logprobs(delta.logprobs)
        for step in self._steps(delta):
            made += self._step_events(step, fresh)
        return made

    def text_event(self, _index: int, delta: Delta) -> bytes | None:
        """Makes the event as other shapes do. The text is also added to the block, because the last events of this API
        repeat the whole text."""
        if not delta.text or delta.finish_reason is not None:
            return None
        if not (self._begun and self._turn.passes(delta)):
            return None
        block = self._turn.made.blocks[-1]
        if block.index not in self._templates:
            self._templates[block.index] = self._text_template(block)
        block.text += delta.text
        self._items += delta.logprobs
        number, self._number = self._number, self._number + 1
        return self._templates[block.index].raw(number, delta.text, self._logprobs(delta.logprobs))

    def _text_template(self, block: Block) -> EventTemplate:
        number, text, logprobs = new_mark(), new_mark(), new_mark()
        kind, data = self._grown(block, text, logprobs)
        return EventTemplate(Event(kind, {"type": kind, "sequence_number": number, **data}), number, text, logprobs)

    def last_events(self, counts: Counts) -> list[Event]:
        status = self._status()
        return [self._event(f"response.{status}", response=self._response(status, counts))]

    def problem_events(self, problem: Problem) -> list[Event]:
        """Returns the event response.failed, whose response object contains the error."""
        code = problem.code if problem.status < 500 else "server_error"
        error = {"code": code, "message": problem.message}
        failed = {**self._response("failed", NO_COUNTS), "error": error}
        return [self._event("response.failed", response=failed)]

    def collect(self, _index: int, delta: Delta) -> None:
        self._items += delta.logprobs
        self._steps(delta)

    def whole(self, counts: Counts) -> dict[str, Any]:
        return self._response(self._status(), counts)

    def _steps(self, delta: Delta) -> list[Step]:
        """Returns how a delta changes the blocks of the answer. An answer without any block still gets a message,
        because clients look for one."""
        steps = self._turn.take(delta)
        if delta.finish_reason is not None and not self._turn.made.blocks:
            block = Block("text", 0)
            self._turn.made.blocks.append(block)
            return [Opened(block), Closed(block)]
        return steps

    def _status(self) -> str:
        return "incomplete" if self._turn.finish_reason == "length" else "completed"

    def _step_events(self, step: Step, logprobs: list[dict[str, Any]]) -> list[Event]:
        block = step.block
        at: dict[str, Any] = {"output_index": block.index, "item_id": self._item_id(block)}
        if isinstance(step, Opened):
            made = [self._event("response.output_item.added", output_index=block.index, item=self._item(block, False))]
            if block.kind != "call":
                part = self._part(block, "")
                made.append(self._event("response.content_part.added", **at, content_index=0, part=part))
            return made
        if isinstance(step, Grew):
            if block.kind == "call":
                return [self._event(f"response.{_call_words(block).event}.delta", **at, delta=step.text)]
            kind, data = self._grown(block, step.text, logprobs)
            return [self._event(kind, **data)]
        return self._closing_events(block, at)

    def _grown(self, block: Block, text: str, logprobs: Any) -> tuple[str, dict[str, Any]]:
        """Returns the name and the fields of the event with more text of this block. The event's number is not among
        the fields."""
        extra = {"logprobs": logprobs} if block.kind == "text" else {}
        at = {"output_index": block.index, "item_id": self._item_id(block)}
        return f"response.{_KINDS[block.kind]}.delta", {**at, "content_index": 0, "delta": text, **extra}

    def _closing_events(self, block: Block, at: dict[str, Any]) -> list[Event]:
        if block.kind == "call":
            words = _call_words(block)
            done = {words.key: block.text} if block.takes_text else {"name": block.name, words.key: block.text}
            made = [self._event(f"response.{words.event}.done", **at, **done)]
        else:
            extra = {"logprobs": self._logprobs(self._items)} if block.kind == "text" else {}
            part = self._part(block, block.text)
            made = [
                self._event(f"response.{_KINDS[block.kind]}.done", **at, content_index=0, text=block.text, **extra),
                self._event("response.content_part.done", **at, content_index=0, part=part),
            ]
        item = self._item(block, True)
        return [*made, self._event("response.output_item.done", output_index=block.index, item=item)]

    def _event(self, kind: str, **data: Any) -> Event:
        number, self._number = self._number, self._number + 1
        return Event(kind, {"type": kind, "sequence_number": number, **data})

    def _item_id(self, block: Block) -> str:
        prefix = _call_words(block).prefix if block.kind == "call" else _ID_PREFIXES[block.kind]
        return f"{prefix}_{self._call.response_id.removeprefix('resp_')}_{block.index}"

    def _item(self, block: Block, done: bool) -> dict[str, Any]:
        cut = self._turn.finish_reason == "length" and block is self._turn.made.blocks[-1]
        status = ("incomplete" if cut else "completed") if done else "in_progress"
        made: dict[str, Any] = {"id": self._item_id(block), "status": status}
        if block.kind == "call":
            words = _call_words(block)
            said = block.text if done else ""  # the block may have grown since it opened: the new text comes as deltas
            call = {"call_id": block.call_id, "name": block.name, words.key: said}
            return {**made, "type": words.type, **call}
        content = [self._part(block, block.text)] if done else []
        if block.kind == "reasoning":
            return {**made, "type": "reasoning", "summary": [], "content": content}
        return {**made, "type": "message", "role": "assistant", "content": content}

    def _part(self, block: Block, text: str) -> dict[str, Any]:
        if block.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        logprobs = self._logprobs(self._items) if text else []
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def _logprobs(self, items: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
        if self._call.logprobs is None:
            return []
        made: list[dict[str, Any]] = chat_logprobs(items, self._call.logprobs, self._serving.tokenizer)["content"]
        return made

    def _response(self, status: str, counts: Counts | None) -> dict[str, Any]:
        asked: ResponsesRequest = self._call.asked
        params = self._call.prompts[0].params
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self._call.response_id,
            "object": "response",
            "created_at": self._call.created_s,
            "status": status,
            "background": False,
            "conversation": shown_conversation(asked.conversation),
            "error": None,
            "incomplete_details": cut,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "model": self._call.model,
            "output": [] if counts is None else [self._item(block, True) for block in self._turn.made.blocks],
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": asked.previous_response_id,
            "reasoning": asked.reasoning or {"effort": None, "summary": None},
            "store": self._serving.stored is not None and asked.store is not False,
            "temperature": params.temperature,
            "text": {"format": (asked.text.format if asked.text else None) or {"type": "text"}},
            "tool_choice": asked.tool_choice or "auto",
            "tools": [_tool(tool) for tool in asked.tools or []],
            "top_logprobs": asked.top_logprobs or 0,
            "top_p": params.top_p,
            "truncation": asked.truncation or "disabled",
            "usage": None if counts is None else self._usage(counts),
            "user": asked.user,
        }

    def _usage(self, counts: Counts) -> dict[str, Any]:
        prompt_tokens, images = self._call.num_prompt_tokens, self._call.num_image_tokens
        details = {"cached_tokens": counts.cached, "cache_write_tokens": 0}
        return {
            "input_tokens": prompt_tokens,
            "input_tokens_details": details | ({"image_tokens": images} if images else {}),
            "output_tokens": counts.completion,
            "output_tokens_details": {"reasoning_tokens": self._turn.reasoning_tokens},
            "total_tokens": prompt_tokens + counts.completion,
        }


def _tool(tool: ResponseTool) -> dict[str, Any]:
    """Returns a tool as the request has it."""
    made: dict[str, Any] = msgspec.to_builtins(tool)
    always = ("type", "name", "description", "parameters", "strict") if tool.type == "function" else ("type",)
    return {name: value for name, value in made.items() if value is not None or name in always}


_KINDS = {"text": "output_text", "reasoning": "reasoning_text"}
_ID_PREFIXES = {"text": "msg", "reasoning": "rs"}


class _CallWords(NamedTuple):
    """The words by which /v1/responses names one kind of tool call. type: the item's type. key: the item's key for the
    text that the model wrote. event: the middle part of the names of the item's events. prefix: the beginning of the
    item's id."""

    type: str
    key: str
    event: str
    prefix: str


_FUNCTION = _CallWords("function_call", "arguments", "function_call_arguments", "fc")
_TEXT_TOOL = _CallWords("custom_tool_call", "input", "custom_tool_call_input", "ctc")


def _call_words(block: Block) -> _CallWords:
    return _TEXT_TOOL if block.takes_text else _FUNCTION
