"""Renders test messages with a chat template. Their words are in no template, so the rest of a rendered text is the
template's own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from os.path import commonprefix
from typing import Any, Protocol

from msgspec import Struct

from twostroke.text.talk.ends import MARK, always_after
from twostroke.types.errors import InvalidRequest
from twostroke.types.first_use.made_once import made_once

ASK, TEXT, THOUGHT = "Qzask", "Qztext qzend", "Qzthought qzend"
NAME, OTHER = "qz_first", "qz_second"
IDS = ("Qz0Qz0Qz0", "Qz1Qz1Qz1")
THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")
_BEGUN = re.compile(r"(<[^<>\s]*|\[[^\[\]\s]*)\Z")
"""Matches an unfinished tag, such as `<think`, at the end of a text."""


class Renders(Protocol):
    """The part of a chat template that this package needs: it turns messages into text."""

    @property
    def variables(self) -> frozenset[str]:
        """The names of variables to which a request may give values."""

    def written(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Returns the text of the messages. Raises InvalidRequest where the template refuses them."""


class TurnCase(Struct, frozen=True):
    """An assistant's turn for a test. calls: (name, arguments) of each call."""

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    content: str = ""
    thought: str = ""


FIRST = TurnCase(((NAME, {"qz_key": "qzvalue"}),))
CHECKS = (
    FIRST,
    TurnCase(((NAME, {"qz_key": "qzvalue"}),), TEXT),
    TurnCase(
        (
            (NAME, {"qz_key": 'a "b" [c] {d}', "qz_number": 7}),
            (OTHER, {"qz_flag": True, "qz_list": [1, "x", {"y": 2}]}),
        )
    ),
    TurnCase(((NAME, {"qz_key": "one\ntwo </x> 'q'"}),)),
    TurnCase(((OTHER, {}),)),
)
SCHEMAS: dict[str, Any] = {
    NAME: {
        "type": "object",
        "properties": {"qz_key": {"type": "string"}, "qz_number": {"type": "integer"}},
    },
    OTHER: {
        "type": "object",
        "properties": {"qz_flag": {"type": "boolean"}, "qz_list": {"type": "array"}},
    },
}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "qz about", "parameters": schema}}
    for name, schema in SCHEMAS.items()
]


class TemplateProbe:
    """Renders known conversations with one template. `turn` returns None where the template refuses a conversation."""

    def __init__(self, template: Renders) -> None:
        self._template = template
        self._turns: dict[int, str | None] = {}

    @property
    def described(self) -> Any:
        """The checkpoint's own description of the model's answers (`response_template` or `response_schema`); None
        where there is none."""
        return getattr(self._template, "described", None)

    @made_once
    def prompt(self) -> str:
        """The prompt that the template writes for one user message; "" where it refuses this message."""
        return self._text([_user()], True) or ""

    @made_once
    def prompts(self) -> tuple[str, ...]:
        """The prompts that the template writes for one user message: first without a variable for thinking, then with
        thinking on and off, where the template has such a variable."""
        made = [self.prompt]
        for name in ("enable_thinking", "thinking"):
            if name in self._template.variables:
                made += [self._text([_user()], True, variables={name: value}) or "" for value in (True, False)]
        return tuple(made)

    @made_once
    def offer(self) -> str:
        """A prompt that offers tools."""
        return self._text([_user()], True, tools=TOOLS) or ""

    def turn(self, case: TurnCase) -> str | None:
        """Returns the text that the template writes for this turn after the prompt, up to the end of the text."""
        if id(case) not in self._turns:
            self._turns[id(case)] = self._turn(case)
        return self._turns[id(case)]

    def _turn(self, case: TurnCase) -> str | None:
        message = self._message(case)
        for given in (message, _with_text_arguments(message)):
            full = self._text([_user(), given], False, tools=TOOLS if case.calls else None)
            if full is not None:
                start = self._text([_user()], True, tools=TOOLS if case.calls else None) or ""
                turn = full[self._turn_begins(full, start) :]
                for always in (self._always, MARK.sub("", self._always, count=1)):
                    turn = turn.removesuffix(always)
                return turn
        return None

    def _turn_begins(self, full: str, start: str) -> int:
        """Returns the position in `full`, the text of a conversation, at which its last message, an answer, begins.
        start: the text of the prompt before this answer; `full` may begin with a slightly different text."""
        place = len(commonprefix([full, start]))
        opening = self.prompt.removeprefix(self._text([_user()], False) or "")
        if opening != self.prompt and opening.strip() and opening not in full[:place]:
            found = full.find(opening, full.find(ASK))
            return found + len(opening) if found >= 0 else _marks_begin(full, place)
        return _marks_begin(full, place)

    @made_once
    def _always(self) -> str:
        """Returns the text that the template writes at the end of every conversation (see `always_after`)."""
        question = self._text([_user()], False) or ""
        text = self._text([_user(), {"role": "assistant", "content": TEXT}], False) or ""
        answered, _, after = text.rpartition(ASK)[2].partition(TEXT)
        return always_after(question.rpartition(ASK)[2], answered, after)

    def drops_thought(self, opening: str, closing: str) -> bool:
        """Returns True where the template removes a thought from an earlier answer's text."""
        said = f"{opening}{THOUGHT}{closing}{TEXT}"
        text = self._text([_user(), {"role": "assistant", "content": said}, _user()], True)
        return text is not None and TEXT in text and THOUGHT not in text

    def _message(self, case: TurnCase) -> dict[str, Any]:
        made: dict[str, Any] = {"role": "assistant", "content": case.content}
        if case.thought:
            made |= dict.fromkeys(THOUGHT_KEYS, case.thought)
        if case.calls:
            made["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for call_id, (name, arguments) in zip(IDS, case.calls, strict=False)
            ]
        return made

    def _text(self, messages: list[dict[str, Any]], opens: bool, **more: Any) -> str | None:
        try:
            return self._template.written(messages, add_generation_prompt=opens, **more)
        except InvalidRequest:
            return None


def _marks_begin(text: str, place: int) -> int:
    """Returns where the tag begins that extends over `place`; `place` itself where there is none. Two texts that begin
    to differ at `place` may differ within a tag."""
    found = _BEGUN.search(text[:place])
    return found.start() if found and MARK.match(text, found.start()) and place < len(text) else place


def _user() -> dict[str, Any]:
    return {"role": "user", "content": ASK}


def _with_text_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": calls} if calls else dict(message)
