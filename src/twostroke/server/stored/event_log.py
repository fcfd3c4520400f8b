"""The events of a response that runs in the background: clients can follow them, and come back to them later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from twostroke.types.reading.decoders import json_decoder

Json = dict[str, Any]
_OBJECT = json_decoder(dict[str, Any])
_DATA = b"\ndata: "
_END = b"\n\n"


class EventLog:
    """The server-sent events of one background response, for one event loop. Clients can read them while they come and
    later. shown: turns a response object in an event into the form for the client, with the id that the client knows.

    Each event is stored without the empty line at its end, in the order of their sequence_number.
    """

    def __init__(self, shown: Callable[[Json], Json]) -> None:
        self._shown = shown
        self._rest = b""
        self._events: list[tuple[int, bytes]] = []
        self._over = False
        self._grown = asyncio.Event()
        self.response: Json | None = None  # from the last event that contains a whole response

    def take(self, data: bytes) -> None:
        """Adds the next bytes of the stream."""
        *blocks, self._rest = (self._rest + data).split(_END)
        for block in blocks:
            self._add(block)

    def fail(self, response: Json) -> None:
        """Adds the event of a response that failed."""
        number = self._events[-1][0] + 1 if self._events else 0
        data = {"type": "response.failed", "sequence_number": number, "response": response}
        self._add(b"event: response.failed" + _DATA + msgspec.json.encode(data))

    def end(self) -> None:
        """Marks the stream of events as complete, and wakes the clients that wait for more."""
        self._over = True
        self._wake()

    def text(self) -> bytes:
        """Returns the bytes of all events, to be stored."""
        return b"".join(event + _END for _, event in self._events)

    async def follow(self, after: int) -> AsyncIterator[bytes]:
        """Yields all events whose number is above `after`, including those that are still to come."""
        place = 0
        while True:
            grown = self._grown
            for number, event in self._events[place:]:
                if number > after:
                    yield event + _END
            place = len(self._events)
            if self._over:
                return
            if grown is self._grown:
                await grown.wait()

    def _add(self, block: bytes) -> None:
        head, found, data = block.partition(_DATA)
        try:
            event = _OBJECT.decode(data) if found else None
        except msgspec.MsgspecError:
            event = None
        if event is None or "sequence_number" not in event:
            return  # the line is a comment, or the mark at the end of a stream
        if isinstance(event.get("response"), dict):
            event["response"] = self.response = self._shown(event["response"])
            block = head + _DATA + msgspec.json.encode(event)
        self._events.append((event["sequence_number"], block))
        self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()


def kept_log(text: bytes) -> EventLog:
    """Returns a log of events that were stored."""
    log = EventLog(lambda response: response)
    log.take(text)
    log.end()
    return log
