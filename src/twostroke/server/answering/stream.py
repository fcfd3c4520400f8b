"""Answers on the wire: one JSON body, or server-sent events, of which all that are ready go into one write.

Errors before the first byte are HTTP statuses (raised to the app); later errors are an event of the API. A client that
disconnects, or that leaves a write unread for too long, ends its generation at once, streamed or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from twostroke.server.answering.begun import Begun
from twostroke.server.answering.generation import Generation
from twostroke.server.api.changed.headers import said_of
from twostroke.server.api.shape import Counts, Shape
from twostroke.server.api.sse import SSE, Event, StreamForm, line_json
from twostroke.server.calls import Call
from twostroke.server.errors import HttpProblem, SlowReader, problem_of
from twostroke.server.facts import RequestFacts, facts_of
from twostroke.server.gate.body_writer import BodyWriter, Park, body_writer_of, give_park
from twostroke.server.parts import ServerParts
from twostroke.server.telemetry.progress import PROGRESS_S, PromptProgress
from twostroke.server.visit import Visit, visit_of
from twostroke.types.errors import TwostrokeError
from twostroke.types.output import Delta

log = logging.getLogger("twostroke.server")
_STREAM_HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


WRITE_BYTES = 32 * 1024
"""The most bytes of events that are written together; a longer event is written alone."""


LOADING_S = 1.0
"""The seconds of silence after which a stream gets a comment while its model is being loaded. An error before the first
comment has a status of its own."""


class Answer(Response):
    """An ASGI response that runs the generation while it is sent, and stops it when the client has disconnected."""

    def __init__(self, call: Call, shape: Shape, parts: ServerParts) -> None:
        self._call = call
        self._shape = shape
        self._parts = parts
        self._visit = Visit()
        self._facts = RequestFacts("", "", "", 0.0)
        self._can_rest: Callable[[Park], None] = lambda park: None
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the generation and sends the answer. Raises the errors that happen before the first byte."""
        self._visit = visit_of(scope, self._parts.admission.limits.deadline_s, self._parts.admission.door.clock())
        self._facts = facts_of(scope)
        self._facts.ignored_fields, self._facts.warnings = self._call.ignored_fields, self._call.warnings
        self._can_rest = partial(give_park, scope)
        if self._call.delivery.stream:
            body = self._stream(
                EventWriter(
                    send,
                    self._parts.admission.limits.stalled_s,
                    self._more_headers(),
                    body_writer_of(scope),
                    self._shape.written,
                )
            )
        else:
            body = self._whole(scope, receive, send)
        await until_disconnect(receive, body)

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with Generation(self._call, self._parts, self._facts, self._visit) as generation:
            generation.listen(partial(self._collect, generation))
            while (piece := await generation.next()) is not None:
                self._shape.collect(*piece)
        body = await self._body(partial(self._shape.whole, _counts(generation)))
        response = Response(body, media_type="application/json")
        response.raw_headers += self._more_headers()
        await response(scope, receive, send)

    async def _body(self, made: Callable[[], dict[str, Any]]) -> bytes:
        """Returns a whole answer as JSON. made: returns the answer's object. This class makes the JSON on the event
        loop, because that is quick; a subclass with larger answers uses a thread."""
        return line_json(made())

    def _collect(self, generation: Generation) -> bool:
        while (piece := generation.take()) is not None:
            self._shape.collect(*piece)
        return True

    async def _stream(self, events: EventWriter) -> None:
        try:
            last = await self._pieces(events)
            await events.finish(b"".join(map(self._shape.written.raw, last)) + self._shape.closing)
        except SlowReader:
            log.warning("dropped: its client stopped reading", extra=self._ids())

    async def _pieces(self, events: EventWriter) -> list[Event]:
        """Sends all pieces. Returns the events after them, or the events of the error that ended them."""
        try:
            async with Generation(self._call, self._parts, self._facts, self._visit) as generation:
                self._can_rest(generation.park)
                send_now = partial(self._send_now, generation, events)
                while (piece := await self._next(generation, events)) is not None:
                    generation.listen(send_now)  # from the first piece on; until then progress may be reported
                    raw = self._raw(piece, generation)
                    try:
                        while len(raw) < WRITE_BYTES and (piece := generation.take()) is not None:
                            raw += self._raw(piece, generation)
                    finally:  # pieces that came before a fault are sent before the error text
                        if raw:
                            await events.write(raw)
            return self._shape.last_events(_counts(generation))
        except SlowReader:
            raise
        except Exception as error:
            if not events.started:
                raise
            if isinstance(error, HttpProblem | TwostrokeError):
                log.warning("ended while streaming: %s", error, extra=self._ids())
            else:
                log.error("failed while streaming", exc_info=error, extra=self._ids())
            return self._shape.problem_events(problem_of(error))

    def _send_now(self, generation: Generation, events: EventWriter) -> bool:
        """Sends the pieces of the answer that are ready, without waking the task; most tokens are sent in this way.
        Returns False when the task must send the rest."""
        if not events.takes_now:
            return False
        raw = b""
        try:
            while len(raw) < WRITE_BYTES and (piece := generation.take()) is not None:
                raw += self._raw(piece, generation)
        finally:
            if raw:
                events.write_now(raw)
        return len(raw) < WRITE_BYTES

    def _raw(self, piece: tuple[int, Delta], generation: Generation) -> bytes:
        raw = self._shape.text_event(*piece)
        if raw is not None:
            return raw
        return b"".join(map(self._shape.written.raw, self._shape.events(*piece, _counts(generation))))

    def _more_headers(self) -> list[tuple[bytes, bytes]]:
        return said_of(self._call.ignored_fields, self._call.warnings)

    def _ids(self) -> dict[str, str]:
        return {"request_id": self._facts.request_id, "response_id": self._call.response_id}

    async def _next(self, generation: Generation, events: EventWriter) -> tuple[int, Delta] | None:
        if self._call.delivery.progress and not generation.completion_tokens:
            with contextlib.suppress(TimeoutError):
                return await self._first(generation, events)
        while True:
            loading, heartbeat = self._parts.serving.loading(), self._shape.heartbeat
            try:
                return await generation.next(LOADING_S if loading else self._parts.admission.limits.heartbeat_s)
            except TimeoutError:
                words = self._parts.serving.loading() if heartbeat.startswith(b":") else ""
                await events.write(f": {words}\n\n".encode() if words else heartbeat)

    async def _first(self, generation: Generation, events: EventWriter) -> tuple[int, Delta] | None:
        """Waits for the first piece of the answer and returns it. Until then sends events with the progress of the
        prompt. Raises TimeoutError when there was neither a piece nor progress for heartbeat_s seconds."""
        progress = PromptProgress(self._parts.serving.view, f"{self._call.prompts[0].request_id}/0")
        silent_s = 0.0
        while silent_s < self._parts.admission.limits.heartbeat_s:
            try:
                return await generation.next(PROGRESS_S)
            except TimeoutError:
                news = progress.news()
            silent_s = silent_s + PROGRESS_S if news is None else 0.0
            if news is not None:
                await events.send(self._shape.progress_events(news))
        raise TimeoutError


def _counts(generation: Generation) -> Counts:
    return Counts(generation.completion_tokens, generation.cached_tokens)


class EventWriter:
    """Writes the events of one answer. The headers go out with the first event. Raises SlowReader when a write stays
    unread too long."""

    def __init__(
        self,
        send: Send,
        stalled_s: float,
        more_headers: Sequence[tuple[bytes, bytes]] = (),
        body_writer: BodyWriter | None = None,
        written: StreamForm = SSE,
    ) -> None:
        self.started = False
        self._body_writer = body_writer
        self._raw = written.raw
        self._headers = [(b"content-type", written.media_type), *_STREAM_HEADERS, *more_headers]
        self._send = send
        self._stalled_s = stalled_s

    async def send(self, events: Sequence[Event]) -> None:
        """Sends all events in one write."""
        if events:
            await self.write(b"".join(map(self._raw, events)))

    async def finish(self, raw: bytes) -> None:
        """Sends the last bytes and the end of the response, in one write."""
        await self.write(raw, more=False)

    async def write(self, raw: bytes, *, more: bool = True) -> None:
        """Sends bytes unchanged. more: True when the response goes on."""
        if not self.started:
            self.started = True
            await self._put({"type": "http.response.start", "status": 200, "headers": list(self._headers)})
        await self._put({"type": "http.response.body", "body": raw, "more_body": more})

    @property
    def takes_now(self) -> bool:
        """True when `write_now` may be called: the connection has room, and its server can write a body directly."""
        return self.started and self._body_writer is not None and self._body_writer.takes_now

    def write_now(self, raw: bytes) -> None:
        """Sends the same bytes as `write`, without waiting and without a call of every layer in between."""
        if self._body_writer is not None:
            self._body_writer.write(raw)

    async def _put(self, message: dict[str, Any]) -> None:
        """Sends one ASGI message. Most messages are taken at once, and no timer is started for them. A message that the
        client leaves unread for too long raises SlowReader."""
        writing = Begun(self._send(message))
        if writing.over:
            return
        try:
            async with asyncio.timeout(self._stalled_s):
                await writing
        except TimeoutError:
            raise SlowReader from None


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Runs `work`; cancels it when the client disconnects. Raises what `work` raises. The body must have been read."""
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
