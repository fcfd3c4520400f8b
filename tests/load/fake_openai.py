"""An OpenAI-compatible server whose answers are scripts: the bytes that it sends, its waits, and its failures."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.patience import PATIENCE_S

AROUND = 7  # tokens that the "template" puts around the words of a prompt

Step = float | bytes | Callable[[], Awaitable[object]]
"""Seconds to wait, bytes to send, or a function to await."""


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def chunk(text: str | None, finish: str | None = None, usage: Any = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], "usage": usage})


def usage_of(prompt: int, completion: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": {"cached_tokens": 2}}


def words_in(body: dict[str, Any]) -> int:
    text = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
    return len(text.split())


def answer(body: dict[str, Any], first_s: float = 0.0, gap_s: float = 0.0, with_usage: bool = True) -> list[Step]:
    """A whole stream of max_tokens tokens, with a chunk without text before them and one after them, and usage."""
    tokens = body["max_tokens"]
    steps: list[Step] = [chunk(""), first_s]
    for index in range(tokens):
        steps += [gap_s if index else 0.0, chunk(" word")]
    steps.append(chunk(None, "length"))
    if with_usage:
        steps.append(event({"choices": [], "usage": usage_of(words_in(body) + AROUND, tokens)}))
    return [*steps, event(b"[DONE]")]


@dataclass
class Refusal:
    status: int
    message: str


@dataclass
class Fake:
    """script: (number of the request, its body) -> what is sent. most_at_once: the most requests in flight so far.

    answers_per_connection: after this number of answers, the next request on a connection closes it, with `goodbye` as
    its answer.
    """

    script: Callable[[int, dict[str, Any]], list[Step] | Refusal] = lambda number, body: answer(body)
    models: Any = field(default_factory=lambda: {"data": [{"id": "fake-model", "max_model_len": 4096}]})
    models_status: int = 200
    content_type: str = "text/event-stream"
    answers_per_connection: int = 1_000_000
    goodbye: bytes = b""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    now: int = 0
    most_at_once: int = 0
    url: str = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered = 0
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.headers.append(head)
                length = next((int(x.split(":")[1]) for x in head.lower().split("\r\n") if "content-length" in x), 0)
                body = await reader.readexactly(length)
                if answered == self.answers_per_connection:
                    writer.write(self.goodbye)
                    return
                answered += 1
                if head.startswith("GET"):
                    await self._whole(writer, self.models_status, self.models)
                else:
                    await self._answer(writer, json.loads(body))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        self.bodies.append(body)
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            made = self.script(len(self.bodies), body)
            if isinstance(made, Refusal):
                await self._whole(writer, made.status, {"error": {"message": made.message, "type": "t"}})
                return
            writer.write(
                f"HTTP/1.1 200 OK\r\ncontent-type: {self.content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
            )
            for step in made:
                if isinstance(step, bytes):
                    writer.write(f"{len(step):x}\r\n".encode() + step + b"\r\n")
                    await writer.drain()
                else:
                    await (asyncio.sleep(step) if isinstance(step, float) else step())
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            self.now -= 1

    async def _whole(self, writer: asyncio.StreamWriter, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()


@asynccontextmanager
async def serving(fake: Fake) -> AsyncIterator[Fake]:
    """Serves in the running loop, on an ephemeral port."""
    server = await asyncio.start_server(fake.handle, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()


@contextmanager
def serving_in_a_thread(fake: Fake) -> Iterator[Fake]:
    """Serves in a thread, for clients that have a loop of their own."""
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def main() -> None:
        async with serving(fake):
            ready.set()
            await stop.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_S)
    try:
        yield fake
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)
        loop.close()
