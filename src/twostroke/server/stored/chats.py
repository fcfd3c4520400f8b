"""The chats of the web page that a server stores with --chats. Each chat is one file, in the form in which the web page
exports it."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.decode import body_kind, decode
from twostroke.server.stored.keeping import keep
from twostroke.server.stored.records import Bounds, Records, require_writable

FORMAT, OPTION, BYTES_OPTION = "twostroke-chats", "--chats", "--chats-bytes"
MAX_CHATS = 1000
UNREADABLE = Problem(
    503, "A chat or the folder of chats cannot be read. Let the server's user read it.", code="storage_unreadable"
)
NEW = "*"
"""The value of `expected` that means: the chat must not exist yet."""


@body_kind
class SentChat(Struct):
    """A chat as the web page sends it. The server checks only these fields and stores the rest unread: what a message
    contains is known to the web page alone."""

    format: str
    version: int
    chats: list[dict[str, msgspec.Raw]]
    contents: dict[str, msgspec.Raw] = {}


class KeptChat(Struct, frozen=True):
    """A stored chat. data: the bytes that were sent. revision: an id of these bytes, which changes with each write."""

    data: bytes
    revision: str


class StoredChats:
    """The stored chats of all clients, for one event loop. Raises ConfigError when the folder cannot be written."""

    def __init__(self, folder: Path, max_bytes: int, wall_clock: Callable[[], float] = time.time) -> None:
        require_writable(folder, "chats", OPTION)
        bounds = Bounds(max_bytes, MAX_CHATS, math.inf, BYTES_OPTION)
        self._records = Records(folder, ".json", bounds, wall_clock, forget_oldest=False)
        self._changing = asyncio.Lock()

    async def listed(self, client: str) -> dict[str, str]:
        """Returns the revision of each chat by its name; "" for a chat that cannot be read. The latest chat is first.

        Raises HttpProblem (503) when the folder cannot be read, because an empty list would be wrong.
        """
        return await asyncio.to_thread(self._listed, client)

    def _listed(self, client: str) -> dict[str, str]:
        if not self._records.can_list(client):
            raise HttpProblem(UNREADABLE)
        found = ((name, self._records.get(client, name)) for name in self._records.names(client))
        return {name: "" if data is None else _revision(data) for name, data in found}

    async def get(self, client: str, name: str) -> KeptChat:
        """Returns a chat. Raises HttpProblem (404, 503)."""
        found = await self._find(client, name)
        if found is None:
            raise HttpProblem(_unknown(name))
        return found

    async def put(self, client: str, name: str, data: bytes, expected: str | None) -> str:
        """Stores a chat, in place of the one with that name, and returns its revision.

        expected: the revision that it replaces, or NEW; None for any. Raises HttpProblem (400, 412, 503, 507).
        """
        if self._records.path(client, name) is None:
            text = "A chat's name has 1 to 128 letters, digits, '.', - and _, and begins with a letter or digit."
            raise HttpProblem(Problem(400, text, param="name"))
        async with self._changing:
            there = await self._find(client, name)
            if expected is not None and expected != (NEW if there is None else there.revision):
                text = "This chat has changed since it was read. Read it again, merge the two, and send the result."
                raise HttpProblem(Problem(412, text, code="chat_changed"))
            await keep(self._records, client, name, data, "chat")
        return _revision(data)

    async def remove(self, client: str, name: str) -> None:
        """Deletes a chat. Raises HttpProblem (404)."""
        async with self._changing:
            if not await asyncio.to_thread(self._records.remove, client, name):
                raise HttpProblem(_unknown(name))

    async def _find(self, client: str, name: str) -> KeptChat | None:
        return await asyncio.to_thread(self._found, client, name)

    def _found(self, client: str, name: str) -> KeptChat | None:
        data, path = self._records.get(client, name), self._records.path(client, name)
        if data is None and path is not None and os.path.lexists(path):
            raise HttpProblem(UNREADABLE)  # else a write would replace the damaged record
        return None if data is None else KeptChat(data, _revision(data))


def checked(body: bytes) -> bytes:
    """Returns the body, which must be an export of one chat. Raises InvalidRequest, HttpProblem (400, 413)."""
    sent = decode(body, SentChat)
    if sent.format != FORMAT or len(sent.chats) != 1:
        raise HttpProblem(Problem(400, f"The body must be an export of one chat, with the format {FORMAT!r}."))
    return body


def _revision(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _unknown(name: str) -> Problem:
    text = f"There is no chat {name[:200]!r}. It was not kept, or was deleted."
    return Problem(404, text, param="name", code="not_found")
