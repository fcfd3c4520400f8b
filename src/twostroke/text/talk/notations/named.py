"""Notation "named": the tool's name stands as plain text in front of the arguments, which are a JSON object. The marks
before and after the name differ from model to model:

    hours[ARGS]{"day": "Mon"}        functions.hours:0<|tool_call_argument_begin|>{"day": "Mon"}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from twostroke.text.talk.calling import Calling
from twostroke.text.talk.hold.lark import Lark
from twostroke.text.talk.ids import CallIds
from twostroke.text.talk.notations.json_text import dumped, read_value
from twostroke.text.talk.stream import Reading, TextStream

NAME = re.compile(r"[^\s<>{}\[\]()\"'|,;=]*")
MOST_NAME = 256


class NamedNotation(Struct, frozen=True):
    """A call has five parts in this order: the text `before`, the name, the text `middle`, the arguments, the text
    `end`. An id may stand in front of the name or after it.

    before, end: the texts before the name and after the arguments. id_open: the mark of an id after the name.
    id_close: the mark that ends an id in front of the name. writes_id: False where a model of this form may leave out
    the id. ids: the form of ids, for formats in which the id itself holds the name. Satisfies `Notation`.
    """

    middle: str
    before: str = ""
    end: str = ""
    id_open: str = ""
    id_close: str = ""
    writes_id: bool = True
    ids: CallIds = CallIds()
    lead: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.before, self.middle, self.end, self.id_open, self.id_close)

    def fits(self, stream: TextStream) -> Reading[bool]:
        if self.before.strip():
            return (yield from stream.starts(self.before.strip()))
        first = yield from stream.peek()
        return bool(NAME.fullmatch(first)) and bool(first)

    def read(self, stream: TextStream, call: Calling) -> Reading[None]:
        yield from stream.match(self.before.strip())
        yield from stream.space()
        call_id = ""
        name = yield from stream.word(NAME, MOST_NAME)
        if self.id_close and name:
            call_id = name
            if not (yield from stream.match(self.id_close)):
                return
            name = yield from stream.word(NAME, MOST_NAME)
        yield from stream.space()
        if not name or not (yield from stream.peek()):
            return  # more of the name may come
        if self.id_open and (yield from stream.match(self.id_open)):
            call_id = yield from stream.word(NAME, MOST_NAME)
        held = self.ids.name_of(name)
        if not call.name(held or name, name if held else call_id):
            return
        yield from self._arguments(stream, call)

    def _arguments(self, stream: TextStream, call: Calling) -> Reading[None]:
        for part in self.middle.split():
            yield from stream.space()
            yield from stream.match(part)
        yield from stream.space()
        if (yield from stream.starts("{")) or (yield from stream.starts("[")):
            yield from read_value(stream, call.argue)
        elif (yield from stream.peek()):
            call.no_arguments()
        yield from stream.space()
        yield from stream.match(self.end.strip())

    def write(self, name: str, arguments: Mapping[str, Any], call_id: str) -> str:
        given = dumped(arguments)
        if self.ids.template:
            return f"{self.before}{call_id}{self.middle}{given}{self.end}"
        in_front = call_id + self.id_close if self.id_close else ""
        after = self.id_open + call_id if self.id_open and self.writes_id else ""
        return f"{self.before}{in_front}{name}{after}{self.middle}{given}{self.end}"

    def rule(self, name: str, schema: Mapping[str, Any], lark: Lark) -> str:
        ids = "/[A-Za-z0-9]{1,24}/"
        parts = [lark.text(self.before)]
        if self.ids.template:
            before, _, _ = self.ids.template.format(name=name, count="\0").partition("\0")
            parts += [lark.text(before), "/[0-9]{1,4}/"]
        else:
            parts += [ids, lark.text(self.id_close)] if self.id_close else []
            parts.append(lark.text(name))
            parts += [lark.text(self.id_open), ids] if self.id_open and self.writes_id else []
        return " ".join([*parts, lark.text(self.middle), lark.json(schema), lark.text(self.end)])
