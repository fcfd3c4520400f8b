"""Messages in Anthropic's form: blocks that open, grow and close between message_start and message_stop."""

from __future__ import annotations

import json
from typing import Any

from twostroke.server.api.messages_request import caches_all
from twostroke.server.api.shape import Block, Closed, Counts, Grew, Opened, Step, TurnShape
from twostroke.server.api.sse import Event, EventTemplate, new_mark
from twostroke.server.errors import Problem, messages_problem
from twostroke.text.talk.cut_json import complete_part
from twostroke.types.output import Delta

PING = b'event: ping\ndata: {"type": "ping"}\n\n'


class MessagesShape(TurnShape):
    """One message, streamed or whole."""

    heartbeat = PING

    def events(self, _index: int, delta: Delta, counts: Counts) -> list[Event]:
        """Returns the events of a piece. The number of cached prompt tokens is known only at the end, so message_delta
        has it."""
        made: list[Event] = []
        if not self._begun:
            self._begun = True
            made.append(_event("message_start", message=self._message([], counts)))
        return made + [_step_event(step) for step in self._turn.take(delta)]

    def text_event(self, _index: int, delta: Delta) -> bytes | None:
        if not delta.text or delta.finish_reason is not None:
            return None
        if not (self._begun and self._turn.passes(delta)):
            return None
        block = self._turn.made.blocks[-1]
        if block.index not in self._templates:
            mark = new_mark()
            self._templates[block.index] = EventTemplate(_step_event(Grew(block, mark)), mark)
        return self._templates[block.index].raw(delta.text)

    def last_events(self, counts: Counts) -> list[Event]:
        return [
            _event("message_delta", delta=self._end(), usage=self._usage(counts)),
            _event("message_stop"),
        ]

    def problem_events(self, problem: Problem) -> list[Event]:
        return [Event("error", messages_problem(problem))]

    def collect(self, _index: int, delta: Delta) -> None:
        self._turn.take(delta)

    def whole(self, counts: Counts) -> dict[str, Any]:
        content = [_block(block, block.text) for block in self._turn.made.blocks]
        return {**self._message(content, counts), **self._end()}

    def _message(self, content: list[dict[str, Any]], counts: Counts) -> dict[str, Any]:
        return {
            "id": self._call.response_id,
            "type": "message",
            "role": "assistant",
            "model": self._call.model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(counts),
        }

    def _end(self) -> dict[str, Any]:
        turn = self._turn
        if turn.finish_reason == "length":
            reason = "max_tokens"
        elif isinstance(turn.stop_reason, str):
            return {"stop_reason": "stop_sequence", "stop_sequence": turn.stop_reason}
        else:
            reason = "tool_use" if turn.called else "end_turn"
        return {"stop_reason": reason, "stop_sequence": None}

    def _usage(self, counts: Counts) -> dict[str, Any]:
        """Returns the usage. input_tokens leaves out the tokens that were read from the prefix cache. Where a
        `cache_control` asks that the whole prompt be cached, all others count as cache_creation_input_tokens."""
        computed = self._call.num_prompt_tokens - counts.cached
        written = computed if caches_all(self._call.asked) else 0
        return {
            "input_tokens": computed - written,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": counts.cached,
            "output_tokens": counts.completion,
        }


def _step_event(step: Step) -> Event:
    block = step.block
    if isinstance(step, Opened):
        return _event("content_block_start", index=block.index, content_block=_block(block, ""))
    if isinstance(step, Closed):
        return _event("content_block_stop", index=block.index)
    kind, key = _DELTAS[block.kind]
    return _event("content_block_delta", index=block.index, delta={"type": kind, key: step.text})


def _block(block: Block, text: str) -> dict[str, Any]:
    if block.kind == "call":
        return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": arguments_of(text)}
    if block.kind == "reasoning":
        return {"type": "thinking", "thinking": text, "signature": ""}
    return {"type": "text", "text": text}  # no `citations`: clients reject null there


def arguments_of(text: str) -> Any:
    """Returns the arguments as an object. A call that broke off has only its complete values, because clients put a
    stream together in this way. A text that is no object is kept as text, so that nothing is invented."""
    try:
        made = json.loads(text or "{}")
    except (ValueError, RecursionError):
        made = complete_part(text)
    return made if isinstance(made, dict) else {"_unreadable": text}


def _event(name: str, **data: Any) -> Event:
    return Event(name, {"type": name, **data})


_DELTAS = {
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}
