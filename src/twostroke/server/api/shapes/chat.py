"""Chat completions in OpenAI's form: exactly the required keys, and no chunk that breaks a known client."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from twostroke.server.api.logprobs import chat_logprobs
from twostroke.server.api.shape import Block, ChatTurn, Closed, Counts, Opened, Step
from twostroke.server.api.shapes.openai_envelope import Envelope, usage_of
from twostroke.server.api.sse import Event, EventTemplate
from twostroke.server.calls import Call
from twostroke.server.serving import Serving
from twostroke.types.output import Delta
from twostroke.types.result import TokenLogprob


class ChatShape(Envelope):
    """chat.completion, streamed or whole. Satisfies Shape. called: the finish reason of an answer with tool calls."""

    called = "tool_calls"

    def __init__(self, call: Call, serving: Serving) -> None:
        super().__init__(call, serving, "chat.completion", "chat.completion.chunk")
        self._turns = [ChatTurn(call, serving.new_id, self.tokenizer.token_bytes) for _ in range(call.num_choices)]
        self._begun: set[int] = set()
        self._templates: dict[int, EventTemplate] = {}
        self._items: list[list[TokenLogprob]] = [[] for _ in self._turns]

    def events(self, index: int, delta: Delta, counts: Counts) -> list[Event]:
        """Returns the events of a piece. The role comes with the first token, never before, because clients take the
        first chunk for the first token."""
        turn = self._turns[index]
        said = [part for step in turn.take(delta) if (part := self._said(turn, step)) is not None]
        logprobs = self._logprobs(delta.logprobs) if delta.logprobs else None
        if index not in self._begun and (delta.token_ids or said or delta.finish_reason):
            self._begun.add(index)
            first = {"role": "assistant", "content": ""}
            said = [{**first, **said[0]}, *said[1:]] if said else [first]
        if not said and (delta.finish_reason or logprobs is not None):
            said = [{}]
        choices = [self._chunk_choice(index, part) for part in said]
        if choices:
            choices[0]["logprobs"] = logprobs
            choices[-1]["finish_reason"] = self._finish(turn) if delta.finish_reason else None
        return self.timed(delta, counts, [self.chunk([choice], counts) for choice in choices])

    def text_event(self, index: int, delta: Delta) -> bytes | None:
        if not delta.text or delta.finish_reason is not None:
            return None
        template = self._templates.get(index)
        if template is None:
            template = self.template(partial(self._text_choice, index)) if index in self._begun else None
            if template is None:
                return None
            self._templates[index] = template
        if not self._turns[index].passes(delta):
            return None
        return template.raw(delta.text, self._logprobs(delta.logprobs) if delta.logprobs else None)

    def _text_choice(self, index: int, text: str, logprobs: str) -> dict[str, Any]:
        return self._chunk_choice(index, {"content": text}) | {"logprobs": logprobs}

    def _chunk_choice(self, index: int, part: dict[str, Any]) -> dict[str, Any]:
        return {"index": index, "delta": part, "logprobs": None, "finish_reason": None}

    def collect(self, index: int, delta: Delta) -> None:
        self._turns[index].take(delta)
        self._items[index] += delta.logprobs
        self.took(delta)

    def whole(self, counts: Counts) -> dict[str, Any]:
        choices = [self._choice(index, turn) for index, turn in enumerate(self._turns)]
        return {**self.envelope(choices, streamed=False), "usage": self.usage(counts), **self.whole_timings(counts)}

    def usage(self, counts: Counts) -> dict[str, Any]:
        """Returns the usage, with the number of reasoning tokens for models that reason."""
        made = usage_of(self.call, counts)
        if self.call.turn.form.thinks:
            spent = sum(turn.reasoning_tokens for turn in self._turns)
            made["completion_tokens_details"] = {"reasoning_tokens": spent}
        return made

    def call_parts(self, blocks: Sequence[Block]) -> dict[str, Any]:
        """Returns the fields of a message for its tool calls."""
        return {"tool_calls": [_call_object(block, block.text) for block in blocks]}

    def call_began(self, place: int, block: Block) -> dict[str, Any]:
        """Returns the first delta of a tool call, with its id and name. place: the index of the tool call in the
        answer."""
        return {"tool_calls": [{"index": place, **_call_object(block, "")}]}

    def call_grew(self, place: int, block: Block, text: str) -> dict[str, Any]:
        """Returns a further delta of a tool call, with more of its arguments. place: the index of the tool call in the
        answer. text: the new part of the arguments."""
        more = {"custom": {"input": text}} if block.takes_text else {"function": {"arguments": text}}
        return {"tool_calls": [{"index": place, **more}]}

    def _choice(self, index: int, turn: ChatTurn) -> dict[str, Any]:
        text, thoughts = turn.made.text_of("text"), turn.made.text_of("reasoning")
        calls = turn.made.calls
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if calls and not text else text,
            "refusal": None,
        }
        if thoughts:
            message["reasoning_content"] = thoughts
        if calls:
            message |= self.call_parts(calls)
        return {
            "index": index,
            "message": message,
            "logprobs": self._logprobs(self._items[index]),
            "finish_reason": self._finish(turn),
        }

    def _said(self, turn: ChatTurn, step: Step) -> dict[str, Any] | None:
        """Returns one delta, or None. Only the first delta of a tool call has the id and the name."""
        if isinstance(step, Closed):
            return None
        block = step.block
        if isinstance(step, Opened):
            if block.kind != "call":
                return None
            return self.call_began(turn.made.calls.index(block), block)
        if block.kind == "call":
            return self.call_grew(turn.made.calls.index(block), block, step.text)
        return {"content" if block.kind == "text" else "reasoning_content": step.text}

    def _finish(self, turn: ChatTurn) -> str:
        return self.called if turn.called else turn.finish_reason

    def _logprobs(self, items: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if self.call.logprobs is None:
            return None
        return chat_logprobs(items, self.call.logprobs, self.tokenizer)


def _call_object(block: Block, text: str) -> dict[str, Any]:
    if block.takes_text:
        return {"id": block.call_id, "type": "custom", "custom": {"name": block.name, "input": text}}
    return {"id": block.call_id, "type": "function", "function": {"name": block.name, "arguments": text}}
