"""Reads a turn of several messages: each has a header, which tells whether its text is a thought, content or a call.

    <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>At nine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from twostroke.text.talk.calling import Calling, Tools
from twostroke.text.talk.format import Messages
from twostroke.text.talk.notations.json_text import read_value
from twostroke.text.talk.notations.named import MOST_NAME, NAME
from twostroke.text.talk.stream import Reading, TextStream, marks_of
from twostroke.text.talk.trimmed import Trimmed

_RECIPIENT = re.compile(r"to=([^\s<]+)")
_CHANNEL = re.compile(r"\s*([A-Za-z_]+)")


class Turn(Protocol):
    """The part of TurnReader (reader.py) that this module uses."""

    stream: TextStream
    text: Trimmed
    says: Callable[[str], object]
    thinking: bool
    starts: tuple[str, ...]
    tools: Tools

    def call(self) -> Calling:
        """Returns a new Calling for a call that begins at the stream's position."""

    def count(self, call: Calling) -> None:
        """Counts a call that has ended, so that the next call gets the next index."""

    def thinker(self) -> Trimmed:
        """Returns the object that receives a thought's text."""

    def calls(self, mark: str, refuse: Callable[[str], object]) -> Reading[bool]:
        """Reads the calls that begin with this mark, such as `<tool_call>`, which was just taken. If no call follows,
        sends the mark and the text after it to `refuse`. Returns True where a call was read."""


def read_messages(turn: Turn, form: Messages, prompt_end: str) -> Reading[None]:
    """Reads a turn that consists of several messages, each with a header. prompt_end: the end of the prompt, which may
    contain the first message's header, and even the beginning of that message's text."""
    reader = _Messages(turn, form)
    _, start, begun = prompt_end.rpartition(form.start)
    header, opened, _ = begun.partition(form.body) if start else ("", "", "")
    if opened and not any(end in begun for end in form.ends):
        yield from reader.text_of(header)
    while True:
        if not (yield from reader.message()):
            return


class _Messages:
    def __init__(self, turn: Turn, form: Messages) -> None:
        self._turn, self._form = turn, form
        self._stream = turn.stream
        self._ends = marks_of((*form.ends, form.start))
        self._marks = marks_of((*form.ends, form.start, form.body, form.channel))

    def message(self) -> Reading[bool]:
        """Reads one message, beginning with its header. Returns False where the text has ended."""
        stream, form = self._stream, self._form
        if not form.recipient:
            return (yield from self._addressed())
        yield from stream.space()
        if not (yield from stream.peek()):
            return False
        header: list[str] = []
        stream.keep("")
        yield from stream.match(form.start)
        yield from stream.space()
        told = yield from stream.starts(form.recipient.strip())
        told = told or (bool(form.channel) and (yield from stream.starts(form.channel)))
        told = told or (yield from stream.starts(form.body))
        for end in form.ends:
            if (yield from stream.match(end)):
                stream.forget()
                return True
        if not told:  # there is no header: the model writes a message
            self._turn.says(stream.forget().removeprefix(form.start))
            return (yield from self._body(self._turn.says))
        stream.forget()
        while True:
            mark = yield from stream.until(self._marks, header.append)
            if mark == form.body:
                return (yield from self.text_of("".join(header)))
            if not mark or mark != form.channel:
                if mark == form.start:
                    stream.back(mark)
                return bool(mark)
            header.append(mark)

    def text_of(self, header: str) -> Reading[bool]:
        """Reads the text after a message's header: a thought, content or a call, as the header tells. Returns False
        where the model's text ended, so that no message follows."""
        form, turn = self._form, self._turn
        found = _RECIPIENT.search(header)
        channel = _CHANNEL.match(header.rpartition(form.channel)[2]) if form.channel else found
        if found and found[1] not in (*form.thoughts, *form.everyone):
            return (yield from self._call(found[1]))
        if channel and channel[1] in form.thoughts:
            turn.thinking = True
            more = yield from self._body(turn.thinker().say)
            turn.thinking = False
            return more
        turn.text.trim()
        more = yield from self._body(turn.says)
        turn.text.trim()
        return more

    def _call(self, recipient: str) -> Reading[bool]:
        if self._form.inside:
            return (yield from self._calls_inside())
        call = self._turn.call()
        if call.name(recipient.removeprefix(self._form.prefix)):
            yield from self._stream.space()
            if (yield from self._stream.starts("{")):
                yield from read_value(self._stream, call.argue)
            elif (yield from self._stream.peek()):
                call.no_arguments()
            self._turn.count(call)
        return (yield from self._body(_nowhere))

    def _calls_inside(self) -> Reading[bool]:
        """Reads the text of a message that calls tools, in a format where tags stand around each call. Returns False
        where the model's text ended, so that no message follows."""
        marks = marks_of((*self._ends.marks, *self._turn.starts))
        while True:
            mark = yield from self._stream.until(marks, _nowhere)
            if mark not in self._turn.starts:
                if mark and mark == self._form.start:
                    self._stream.back(mark)
                return bool(mark)
            yield from self._turn.calls(mark, _nowhere)

    def _body(self, say: Callable[[str], object]) -> Reading[bool]:
        mark = yield from self._stream.until(self._ends, say)
        if mark and mark == self._form.start:
            self._stream.back(mark)
        return bool(mark)

    def _addressed(self) -> Reading[bool]:
        """Reads a message whose header is one line with the recipient: a tool, or the user. The first message has no
        opening tag, because the prompt ends with it. Returns False where the model's text ended, so that no message
        follows."""
        stream, form, text = self._stream, self._form, self._turn.text
        stream.keep("")
        yield from stream.match(form.start)
        recipient = yield from stream.word(NAME, MOST_NAME)
        addressed = recipient and (yield from stream.match(form.body))
        if addressed and recipient in form.everyone:
            stream.forget()
            text.trim()
        elif addressed and self._turn.tools.offered(recipient):
            return (yield from self._call(recipient))
        else:
            text.say(stream.forget())
        more = yield from self._body(text.say)
        return more


def _nowhere(_text: str) -> None:
    return
