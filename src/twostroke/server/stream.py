"""Answers on the wire: one JSON body, or server-sent events with one event a write.

Errors before the first byte are HTTP statuses (raised to the app); later ones are an event, then [DONE]. A client that
goes away, or that leaves a write unread for too long, ends its generation at once, streamed or not.

Knows: ASGI, the SSE format, generations.
Must not know: request fields, the JSON of choices.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from twostroke.server.errors import SlowReader, problem_of
from twostroke.server.facts import RequestFacts, facts_of
from twostroke.server.generation import Generation
from twostroke.server.parts import ServerParts
from twostroke.server.progress import PROGRESS_S, PromptProgress
from twostroke.server.prompts import Call
from twostroke.server.responses import Shape, Whole, usage_of
from twostroke.types.output import Delta

log = logging.getLogger("twostroke.server")
DONE = b"data: [DONE]\n\n"
HEARTBEAT = b": waiting\n\n"
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Answer(Response):
    """An ASGI response that runs the generation while it is sent, and stops it when the client is gone."""

    def __init__(self, call: Call, shape: Shape, parts: ServerParts) -> None:
        self._call = call
        self._shape = shape
        self._parts = parts
        self._facts = RequestFacts("", "", "", 0.0)
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises what happens before the first byte."""
        self._facts = facts_of(scope)
        body = self._stream(send) if self._call.stream else self._whole(scope, receive, send)
        await until_disconnect(receive, body)

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        choices = [Whole() for _ in range(self._call.num_choices)]
        async with Generation(self._call, self._parts, self._facts) as generation:
            while (piece := await generation.next()) is not None:
                choices[piece[0]].add(piece[1])
        made = [self._shape.choice(i, whole) for i, whole in enumerate(choices)]
        answer = self._shape.envelope(made, streamed=False)
        answer["usage"] = usage_of(self._call, generation.completion_tokens, generation.cached_tokens)
        await Response(msgspec.json.encode(answer), media_type="application/json")(scope, receive, send)

    async def _stream(self, send: Send) -> None:
        events = EventWriter(send, self._parts.limits.stalled_s)
        try:
            async with Generation(self._call, self._parts, self._facts) as generation:
                while (piece := await self._next(generation, events)) is not None:
                    await self._send_piece(events, piece)
            if self._call.include_usage:
                last = self._shape.envelope([], streamed=True)
                last["usage"] = usage_of(self._call, generation.completion_tokens, generation.cached_tokens)
                await events.send(msgspec.json.encode(last))
        except SlowReader:
            log.warning("dropped: its client stopped reading", extra=self._ids())
            return
        except Exception as error:
            if not events.started:
                raise
            log.error("failed while streaming", exc_info=error, extra=self._ids())
            await events.send(problem_of(error).body())
        await events.finish()

    def _ids(self) -> dict[str, str]:
        return {"request_id": self._facts.request_id, "response_id": self._call.response_id}

    async def _next(self, generation: Generation, events: EventWriter) -> tuple[int, Delta] | None:
        if self._call.progress and not generation.completion_tokens:
            with contextlib.suppress(TimeoutError):
                return await self._first(generation, events)
        while True:
            try:
                return await generation.next(self._parts.limits.heartbeat_s)
            except TimeoutError:
                await events.write(HEARTBEAT)

    async def _first(self, generation: Generation, events: EventWriter) -> tuple[int, Delta] | None:
        """Tell how the prompt goes on until a piece is there. Raises TimeoutError when there is nothing to tell."""
        progress = PromptProgress(self._parts.view, f"{self._call.prompts[0].request_id}/0")
        silent_s = 0.0
        while silent_s < self._parts.limits.heartbeat_s:
            try:
                return await generation.next(PROGRESS_S)
            except TimeoutError:
                news = progress.news()
            silent_s = silent_s + PROGRESS_S if news is None else 0.0
            if news is not None:
                await events.send(msgspec.json.encode(self._shape.envelope([], streamed=True) | news))
        raise TimeoutError

    async def _send_piece(self, events: EventWriter, piece: tuple[int, Delta]) -> None:
        choice = self._shape.chunk(*piece)
        if choice is None:
            return
        chunk = self._shape.envelope([choice], streamed=True)
        if self._call.include_usage:
            chunk["usage"] = None
        await events.send(msgspec.json.encode(chunk))


class EventWriter:
    """One event a write; the headers go out with the first. Raises SlowReader when a write stays unread too long."""

    def __init__(self, send: Send, stalled_s: float) -> None:
        self.started = False
        self._send = send
        self._stalled_s = stalled_s

    async def send(self, data: bytes) -> None:
        """One data event; `data` is JSON, so it holds no line end."""
        await self.write(b"data: " + data + b"\n\n")

    async def finish(self) -> None:
        """[DONE] and the end of the response."""
        await self.write(DONE)
        await self._put({"type": "http.response.body", "body": b"", "more_body": False})

    async def write(self, raw: bytes) -> None:
        """Bytes as they are."""
        if not self.started:
            self.started = True
            await self._put({"type": "http.response.start", "status": 200, "headers": list(_STREAM_HEADERS)})
        await self._put({"type": "http.response.body", "body": raw, "more_body": True})

    async def _put(self, message: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(self._stalled_s):
                await self._send(message)
        except TimeoutError:
            raise SlowReader from None


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run `work`; cancel it when the client goes away. Raises what `work` raises. The body must have been read."""
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
