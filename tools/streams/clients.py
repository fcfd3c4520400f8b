"""Clients that cost little: bare sockets in one process, whose answers are counted and not parsed.

    python tools/streams/clients.py URL --streams 64 --tokens 400 --seconds 10 --route chat|completions

Each client asks for a stream, reads it to its end, and asks again on a new connection until the time is over. Prints
one JSON line: tokens, events, answers, wrong ones, reads, seconds of processor and of clock.
"""

from __future__ import annotations

import argparse
import json
import resource
import selectors
import socket
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

READ_BYTES = 1 << 16
TAIL_BYTES = 1024
MESSAGE = "What is prefill, and why does it differ from decode?"


@dataclass(slots=True)
class Asked:
    """What every client asks, and where."""

    host: str
    port: int
    head_and_body: bytes
    tokens: int


@dataclass(slots=True)
class Tally:
    """Sums over all clients."""

    tokens: int = 0
    events: int = 0
    answers: int = 0
    wrong: int = 0
    reads: int = 0
    size_bytes: int = 0


@dataclass(slots=True, eq=False)
class Client:
    """One connection."""

    sock: socket.socket
    tail: bytes = b""
    events: int = 0
    gaps_s: list[float] = field(default_factory=list)


def request_bytes(url: str, route: str, tokens: int, model: str = "spark") -> Asked:
    """The bytes of a streamed request for exactly `tokens` tokens."""
    where = urlsplit(url)
    body: dict[str, object] = {
        "model": model,
        "stream": True,
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }
    if route == "chat":
        path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": MESSAGE}]
    else:
        path, body["prompt"] = "/v1/completions", MESSAGE
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return Asked(where.hostname or "", where.port or 80, head.encode() + data, tokens)


def begin(asked: Asked, selector: selectors.BaseSelector) -> None:
    """Connect and ask."""
    sock = socket.create_connection((asked.host, asked.port))
    sock.sendall(asked.head_and_body)
    sock.setblocking(False)
    selector.register(sock, selectors.EVENT_READ, Client(sock))


def end(client: Client, asked: Asked, selector: selectors.BaseSelector, tally: Tally) -> None:
    """Count one answer. It is right if its usage names `asked.tokens` tokens and its last event is [DONE]."""
    selector.unregister(client.sock)
    client.sock.close()
    tally.answers += 1
    right = b'"completion_tokens":%d,' % asked.tokens in client.tail and b"data: [DONE]" in client.tail
    tally.wrong += not right
    tally.events += client.events
    tally.tokens += asked.tokens


def run(asked: Asked, streams: int, seconds: float) -> Tally:
    """All clients, until each has ended its last answer."""
    tally, until_s = Tally(), time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for _ in range(streams):
            begin(asked, selector)
        live = streams
        while live:
            for key, _ in selector.select():
                client: Client = key.data
                data = client.sock.recv(READ_BYTES)
                tally.reads += 1
                tally.size_bytes += len(data)
                client.events += data.count(b"data: ")
                client.tail = (client.tail + data)[-TAIL_BYTES:]
                if data:
                    continue
                end(client, asked, selector, tally)
                if time.monotonic() < until_s:
                    begin(asked, selector)
                else:
                    live -= 1
    return tally


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--route", choices=["chat", "completions"], default="chat")
    given = parser.parse_args()
    asked = request_bytes(given.url, given.route, given.tokens)
    begin_s = time.monotonic()
    tally = run(asked, given.streams, given.seconds)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "tokens": tally.tokens,
                "events": tally.events,
                "answers": tally.answers,
                "wrong": tally.wrong,
                "reads": tally.reads,
                "bytes": tally.size_bytes,
                "processor_s": used.ru_utime + used.ru_stime,
                "clock_s": time.monotonic() - begin_s,
            }
        )
    )


if __name__ == "__main__":
    main()
