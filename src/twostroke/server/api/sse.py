"""Events of streams as bytes, and templates of events that differ from one another in a few values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

_encode = msgspec.json.Encoder().encode
_OTHER_LINE_ENDS = tuple((mark.encode(), b"\\u%04x" % ord(mark)) for mark in "\u2028\u2029\u0085")


def line_json(value: Any) -> bytes:
    """Returns JSON that is one line for every reader. Some readers, such as Python, also split text at line ends of
    Unicode."""
    raw = _encode(value)
    if not raw.isascii():
        for mark, escaped in _OTHER_LINE_ENDS:
            raw = raw.replace(mark, escaped)
    return raw


class Event(NamedTuple):
    """One server-sent event. name: the text of its `event:` line; None for no such line. data: the value that is sent
    as JSON."""

    name: str | None
    data: Any


def raw_event(event: Event) -> bytes:
    """Returns the event's bytes as they are sent."""
    data = line_json(event.data)
    return b"data: %b\n\n" % data if event.name is None else b"event: %b\ndata: %b\n\n" % (event.name.encode(), data)


class StreamForm(NamedTuple):
    """How the events of a stream are written. raw: returns the bytes of one event."""

    media_type: bytes
    raw: Callable[[Event], bytes]


def raw_line(event: Event) -> bytes:
    """Returns the event as one line of JSON."""
    return line_json(event.data) + b"\n"


SSE = StreamForm(b"text/event-stream; charset=utf-8", raw_event)
NDJSON = StreamForm(b"application/x-ndjson", raw_line)


def new_mark() -> str:
    """Returns a random text that an EventTemplate can find again, because it occurs nowhere else in the event."""
    return uuid4().hex


class EventTemplate:
    """The bytes of an event in which `marks` stand for the values that change: nearly every token is sent in such an
    event.

    Each mark is a string that occurs in the event once, in this order. Raises ValueError for a mark that does not occur
    exactly once.
    """

    def __init__(self, event: Event, *marks: str) -> None:
        rest, before = raw_event(event), list[bytes]()
        for mark in marks:
            part, found, rest = rest.partition(line_json(mark))
            if not found or mark.encode() in part + rest:
                raise ValueError("a mark does not stand in the event once")
            before.append(part)
        self._before, self._end = before, rest

    def raw(self, *values: Any) -> bytes:
        """Returns the event with these values: byte for byte what `raw_event` makes of the whole event."""
        made = b"".join([part + line_json(value) for part, value in zip(self._before, values, strict=True)])
        return made + self._end
