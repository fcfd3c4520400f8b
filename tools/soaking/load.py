"""Makes the load: arrivals at a rate, each one ordinary, aborted, malformed or hostile. Counts the results."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .clients import Client, head
from .requests import hostile_heads, malformed

ABORTED, MALFORMED, HOSTILE, HASTY = 0.20, 0.05, 0.05, 0.05
MOST_OPEN = 400
HOSTILE_S = 12.0
NONSENSE_S = 60.0  # a body that stops coming is waited for 30 s


@dataclass
class Tally:
    """right, wrong: the numbers of right and wrong whole answers. refused: 429 and 503 that name a time to come again.
    unexpected: results that must not occur."""

    right: int = 0
    wrong: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    unexpected: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    late: int = 0

    def shown(self) -> dict[str, Any]:
        """Returns the counts for a report."""
        return {
            "sent": dict(self.sent),
            "right": self.right,
            "wrong": self.wrong,
            "refused": dict(self.refused),
            "deadline_exceeded": self.late,
            "unexpected": dict(self.unexpected),
        }


class Load:
    """An open loop: requests are sent at their times, without waiting for answers."""

    def __init__(
        self,
        client: Client,
        bodies: list[dict[str, Any]],
        right: list[Any],
        rate: float,
        dice: random.Random,
        tally: Tally,
    ) -> None:
        self._client, self._bodies, self._right = client, bodies, right
        self._rate, self._dice, self._tally = rate, dice, tally
        self._open: set[asyncio.Task[None]] = set()

    async def run(self, length_s: float) -> None:
        """Sends requests for `length_s` seconds, then waits until all of them are over."""
        loop = asyncio.get_running_loop()
        until_s = next_s = loop.time()
        until_s += length_s
        while next_s < until_s:
            next_s += self._dice.expovariate(self._rate)
            await asyncio.sleep(max(0.0, next_s - loop.time()))
            if len(self._open) < MOST_OPEN:
                task = asyncio.create_task(self._one())
                self._open.add(task)
                task.add_done_callback(self._open.discard)
        await asyncio.gather(*self._open)

    async def _one(self) -> None:
        draw = self._dice.random()
        kinds = ((ABORTED, self._abort), (MALFORMED, self._malformed), (HOSTILE, self._hostile), (HASTY, self._hasty))
        try:
            for share, act in kinds:
                if draw < share:
                    self._tally.sent[act.__name__.strip("_")] += 1
                    return await act()
                draw -= share
            self._tally.sent["ordinary"] += 1
            await self._ordinary()
        except (ConnectionError, asyncio.IncompleteReadError):
            self._tally.unexpected["connection lost"] += 1
        except TimeoutError:
            self._tally.unexpected["timeout"] += 1

    async def _ordinary(self) -> None:
        number = self._dice.randrange(len(self._bodies))
        body = self._bodies[number] | {"stream": self._dice.random() < 0.6}
        reply = await self._client.whole(body)
        if reply.status == 200 and reply.error is None:
            right = reply.choices == self._right[number]
            self._tally.right += right
            self._tally.wrong += not right
        elif reply.status in (429, 503) and "retry-after" in reply.headers:
            self._tally.refused[reply.error or ""] += 1
        elif reply.error == "deadline_exceeded":
            self._tally.late += 1
        else:
            self._tally.unexpected[f"{reply.status} {reply.error}"] += 1

    async def _hasty(self) -> None:
        """Sends a request with a deadline that is often too short."""
        data = json.dumps(self._dice.choice(self._bodies)).encode()
        reader, writer = await self._client.connect()
        timeout = f"x-request-timeout-ms: {self._dice.choice([1, 20, 200])}\r\nHost"
        writer.write(head("POST", "/v1/completions", data).replace(b"Host", timeout.encode(), 1) + data)
        status = (await reader.read(-1))[9:12]
        writer.close()
        if status not in (b"200", b"503", b"504"):
            self._tally.unexpected[f"hasty {status!r}"] += 1

    async def _abort(self) -> None:
        """Closes the connection at any moment: while the body is sent, in the queue, or during the answer."""
        body = self._dice.choice(self._bodies) | {"stream": self._dice.random() < 0.7}
        data = json.dumps(body).encode()
        _, writer = await self._client.connect()
        cut = self._dice.choice([len(data), len(data), len(data), len(data) // 2])
        writer.write(head("POST", "/v1/completions", data) + data[:cut])
        await asyncio.sleep(self._dice.expovariate(4.0))
        if self._dice.random() < 0.5:
            writer.transport.abort()
        writer.close()

    async def _malformed(self) -> None:
        path, data, right = malformed(self._dice)
        reply = await self._client.post(path, data)
        if reply.status not in right or not reply.error:
            self._tally.unexpected[f"malformed {reply.status} {path} {data[:40]!r}"] += 1

    async def _hostile(self) -> None:
        if self._dice.random() < 0.5:
            await self._nonsense()
        else:
            await self._no_reader()

    async def _nonsense(self) -> None:
        reader, writer = await self._client.connect()
        try:
            async with asyncio.timeout(NONSENSE_S):
                writer.write(hostile_heads(self._dice))
                got = await reader.read(64)
            if got and not got.startswith(b"HTTP/1.1 4"):
                self._tally.unexpected[f"nonsense {got[:30]!r}"] += 1
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _no_reader(self) -> None:
        """Asks for a long answer, and reads nothing of it for a while."""
        body = {
            "model": "spark",
            "prompt": "x",
            "max_tokens": 200,
            "n": 4,
            "stream": True,
            "logprobs": 5,
            "ignore_eos": True,
        }
        data = json.dumps(body).encode()
        bare = socket.socket()
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        bare.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(bare, ("127.0.0.1", self._client.port))
        try:
            await loop.sock_sendall(bare, head("POST", "/v1/completions", data) + data)
            await asyncio.sleep(self._dice.uniform(0.0, HOSTILE_S))
        finally:
            bare.close()
