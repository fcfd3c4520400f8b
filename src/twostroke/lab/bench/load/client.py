"""Sends one request and observes its answer.

A server may close a kept connection while a request is on its way to it. Where no byte of an answer came, the request
is sent once more on a fresh connection, and the observation records this.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from twostroke.lab.bench.load.answer import Answer
from twostroke.lab.bench.load.connections import Connections
from twostroke.lab.bench.load.server import describe
from twostroke.lab.bench.load.sse import EventReader
from twostroke.lab.workload.observation import Observation

CHAT, COMPLETIONS = "chat", "completions"
ROUTES = {CHAT: "/chat/completions", COMPLETIONS: "/completions"}
MAX_ERROR_BYTES = 1 << 20
NEW_CONNECTION = "connection.connect_tcp.started"
CLOSED_UNANSWERED = "Server disconnected without sending a response."
"""The text of httpx's error for a connection that ended before an answer. Other protocol errors mean that bytes came.
"""


@dataclass(frozen=True, slots=True)
class Asking:
    """What every request has in common. exact: True to get exactly the number of tokens asked for, by ignoring the end
    of text.

    extra: further fields of the body; a field that is None is left out of the body.
    """

    address: str
    model: str
    route: str = CHAT
    exact: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)

    def body(self, text: str, output_tokens: int) -> bytes:
        """Returns the JSON body of one request."""
        prompt: dict[str, Any] = {"prompt": text}
        if self.route == CHAT:
            prompt = {"messages": [{"role": "user", "content": text}]}
        value = {
            "model": self.model,
            **prompt,
            "max_tokens": output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"ignore_eos": True} if self.exact else {}),
            **self.extra,
        }
        return json.dumps({name: given for name, given in value.items() if given is not None}).encode()


@dataclass(slots=True)
class _Sending:
    """The outcome of sending a request once. closed_unanswered: whether a kept connection ended before any answer."""

    answer: Answer = field(default_factory=Answer)
    status: int = 0
    error: str = ""
    closed_unanswered: bool = False


class LoadClient:
    """Sends requests and observes the answers. clock: returns seconds. Times in observations are seconds since
    `start_s`."""

    def __init__(self, connections: Connections, asking: Asking, clock: Callable[[], float]) -> None:
        self._connections, self._asking, self._clock = connections, asking, clock
        self.start_s = clock()

    def now_s(self) -> float:
        """Returns the seconds since start_s."""
        return self._clock() - self.start_s

    async def ask(self, text: str, output_tokens: int, intended_s: float, priority: int = 0) -> Observation:
        """Sends the request now, and observes until the answer ends or fails. Failures are observations, not
        exceptions."""
        body = self._asking.body(text, output_tokens)
        sent_s = self.now_s()
        sending = await self._send(self._connections.kept, body)
        asked_again = sending.closed_unanswered
        if asked_again:
            sending = await self._send(self._connections.fresh, body)
        answer, usage = sending.answer, sending.answer.usage
        details = usage.prompt_tokens_details
        return Observation(
            intended_s=intended_s,
            sent_s=sent_s,
            ended_s=self.now_s(),
            times_s=tuple(answer.times_s),
            counts=tuple(answer.counts),
            prompt_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            cached_tokens=(details.cached_tokens or 0) if details is not None else 0,
            status=sending.status,
            error=sending.error,
            priority=priority,
            asked_again=asked_again,
        )

    async def _send(self, http: httpx2.AsyncClient, body: bytes) -> _Sending:
        sending, connected = _Sending(), False

        async def trace(event: str, _: Any) -> None:
            nonlocal connected
            connected = connected or event == NEW_CONNECTION

        try:
            async with http.stream(
                "POST",
                self._asking.address + ROUTES[self._asking.route],
                content=body,
                headers={"content-type": "application/json"},
                extensions={"trace": trace},
            ) as reply:
                sending.status = reply.status_code
                sending.error = await self._read(reply, sending.answer)
        except httpx2.TimeoutException as failure:
            sending.error = f"timed out ({type(failure).__name__})"
        except (httpx2.RequestError, httpx2.StreamError, OSError, ValueError) as failure:
            sending.error = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
            ended = isinstance(failure, httpx2.ReadError) or str(failure) == CLOSED_UNANSWERED
            sending.closed_unanswered = ended and not connected and not sending.status
        return sending

    async def _read(self, reply: httpx2.Response, answer: Answer) -> str:
        if reply.status_code != 200:
            return describe(reply.status_code, await _beginning(reply))
        if "text/event-stream" not in reply.headers.get("content-type", "text/event-stream"):
            return "the answer was not streamed"
        events = EventReader()
        async for piece in reply.aiter_bytes():
            now_s = self.now_s()
            for data in events.feed(piece):
                answer.event(data, now_s)
        for data in events.finish():
            answer.event(data, self.now_s())
        return answer.finish()


async def _beginning(reply: httpx2.Response) -> bytes:
    """Returns the first MAX_ERROR_BYTES bytes of an error's body, or a few more because pieces are not cut."""
    found = b""
    async for piece in reply.aiter_bytes():
        found += piece
        if len(found) >= MAX_ERROR_BYTES:
            break
    return found
