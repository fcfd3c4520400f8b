"""Plain HTTP over asyncio: a client that can leave, stop reading or send nonsense at any time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

WAIT_S = 120.0


@dataclass(slots=True)
class Reply:
    """status: the HTTP status; 0 when the connection ended without one. choices: the whole answer, put together from
    the pieces of a stream."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    choices: dict[int, Any] = field(default_factory=dict)
    error: str | None = None


class Client:
    """A client that opens a connection for each request."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def connect(self, limit: int = 2**16) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection, without sending a request."""
        return await asyncio.open_connection("127.0.0.1", self.port, limit=limit)

    async def whole(self, body: dict[str, Any]) -> Reply:
        """Returns the full answer, which is streamed when the body asks for a stream."""
        return await self.post("/v1/completions", json.dumps(body).encode())

    async def post(self, path: str, data: bytes) -> Reply:
        """Send a request, and read the answer to its end."""
        reader, writer = await self.connect(2**20)
        try:
            async with asyncio.timeout(WAIT_S):
                writer.write(head("POST", path, data) + data)
                return await read_reply(reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            return Reply()
        finally:
            writer.close()

    async def metrics(self) -> dict[str, float]:
        """Returns the server's own samples by name, as a scrape writes the name, labels included."""
        reader, writer = await self.connect()
        try:
            async with asyncio.timeout(WAIT_S):
                writer.write(head("GET", "/metrics", b""))
                text = (await reader.read(-1)).decode()
        finally:
            writer.close()
        pairs = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("twostroke_")]
        return {name: float(value) for name, value in pairs}

    async def fills(self) -> dict[str, float]:
        """Returns how full each of the server's bounded histories is, by name, from 0 to 1."""
        begin = 'twostroke_history_fill_ratio{history="'
        found = await self.metrics()
        return {name[len(begin) : -2]: value for name, value in found.items() if name.startswith(begin)}


def head(method: str, path: str, data: bytes) -> bytes:
    """Returns the head of a request whose connection ends with its answer."""
    words = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    return words.encode()


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """Reads an answer to its end. Raises IncompleteReadError when the connection ends too early."""
    raw_head = await reader.readuntil(b"\r\n\r\n")
    lines = raw_head.decode("latin-1").split("\r\n")
    reply = Reply(int(lines[0].split()[1]))
    reply.headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:] if line)}
    body = await reader.read(-1)
    if reply.headers.get("transfer-encoding") == "chunked":
        body = unchunk(body)
    if reply.headers.get("content-type", "").startswith("text/event-stream"):
        _read_events(reply, body)
    elif reply.status == 200:
        reply.choices = {c["index"]: _canonical(c) for c in json.loads(body)["choices"]}
    else:
        error = json.loads(body)["error"] if body.startswith(b"{") else {"code": None, "type": "no json"}
        reply.error = error["code"] or error["type"]
    return reply


def unchunk(body: bytes) -> bytes:
    """Returns the body without the framing of chunks. Raises IncompleteReadError when the last chunk is missing."""
    made, place = b"", 0
    while True:
        end = body.find(b"\r\n", place)
        if end < 0:
            raise asyncio.IncompleteReadError(body, None)
        size = int(body[place:end], 16)
        if size == 0:
            return made
        made += body[end + 2 : end + 2 + size]
        place = end + 2 + size + 2


def _read_events(reply: Reply, body: bytes) -> None:
    blocks = [block for block in body.decode().split("\n\n") if block.startswith("data: ")]
    pieces: dict[int, list[Any]] = {}
    for block in blocks:
        if block == "data: [DONE]":
            continue
        value = json.loads(block[6:])
        if "error" in value:
            reply.error = value["error"]["code"]
            continue
        for choice in value["choices"]:
            pieces.setdefault(choice["index"], []).append(choice)
    if not blocks or blocks[-1] != "data: [DONE]":
        reply.error = reply.error or "cut"
    reply.choices = {index: _joined(found) for index, found in pieces.items()}


def _joined(found: list[Any]) -> Any:
    whole: dict[str, Any] = {"text": "", "finish_reason": None, "logprobs": None}
    for choice in found:
        whole["text"] += choice["text"]
        whole["finish_reason"] = choice["finish_reason"] or whole["finish_reason"]
        if choice["logprobs"]:
            if whole["logprobs"] is None:
                whole["logprobs"] = {name: [] for name in choice["logprobs"]}
            for name, values in choice["logprobs"].items():
                whole["logprobs"][name] = whole["logprobs"][name] + values
    return _canonical(whole)


def _canonical(choice: Any) -> Any:
    logprobs = choice["logprobs"] or {}
    return [choice["text"], choice["finish_reason"], logprobs.get("tokens"), logprobs.get("token_logprobs")]
