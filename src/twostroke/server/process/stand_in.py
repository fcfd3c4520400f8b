"""Answers while no worker runs: each request gets 503 with Retry-After, except the liveness probe."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable

from twostroke.server.errors import SERVER, Problem

READ_S = 2.0
MOST_HEAD_BYTES = 64 * 1024
MOST_OPEN = 256
ALIVE = b'{"status":"restarting"}'


class StandIn:
    """`async with StandIn(listener, retry_s):` answers the requests at the listening socket while the server has no
    worker. Answers that are being sent when the block ends are finished. retry_s: returns the seconds for Retry-After.

    asyncio.start_server is not used: when it is closed in the same turn of the loop in which it accepts, it drops the
    connection. Here a connection is either answered, or left in the socket's queue for the worker.
    """

    def __init__(self, listener: socket.socket, retry_s: Callable[[], float]) -> None:
        self._listener = listener
        self._retry_s = retry_s
        self._open = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> StandIn:
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)
        return self

    async def __aexit__(self, *_error: object) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)

    def _accept(self) -> None:
        """Accept one connection in each turn of the loop. Errors are ignored, because another process may have accepted
        it first. When descriptors have run out, the loop tries again at once."""
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            self._open += 1
            task = asyncio.create_task(self._serve(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connection, limit=MOST_HEAD_BYTES)
        except OSError:
            connection.close()
            self._open -= 1
            return
        try:
            if self._open <= MOST_OPEN:
                await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(READ_S):
            head = await reader.readuntil(b"\r\n\r\n")
        writer.write(reply(head, self._retry_s()))
        await writer.drain()
        writer.write_eof()
        # The rest of the client's data is read. Otherwise the system would reset the connection and the answer would be
        # lost.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READ_S):
                while await reader.read(MOST_HEAD_BYTES):
                    pass


def reply(head: bytes, retry_s: float) -> bytes:
    """Returns the HTTP response that is sent while no worker runs: 200 for the liveness probe, 503 with Retry-After for
    all other requests. head: the request's first line and headers."""
    method, _, target = head.partition(b"\r\n")[0].partition(b" ")
    path = target.partition(b" ")[0].partition(b"?")[0]
    # The path may have any prefix, be in absolute form, or have more slashes. A probe that receives 503 would end the
    # supervisor.
    alive = method in (b"GET", b"HEAD") and path.rstrip(b"/").endswith(b"/live")
    problem = Problem(503, "The engine is being restarted.", SERVER, code="engine_restarting")
    body = ALIVE if alive else problem.body()
    words = "200 OK" if alive else "503 Service Unavailable"
    wait_s = max(1, math.ceil(retry_s))
    lines = (
        f"HTTP/1.1 {words}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"retry-after: {wait_s}\r\nconnection: close\r\n\r\n"
    )
    return lines.encode() + (b"" if head.startswith(b"HEAD ") else body)
