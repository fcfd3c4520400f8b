"""Files that clients send for batches, and files that batches make."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import msgspec

from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.stored.keeping import keep
from twostroke.server.stored.records import Records
from twostroke.types.reading.decoders import json_decoder

BATCH, OUTPUT = "batch", "batch_output"
_BOUNDARY = re.compile(rb'boundary="?([^";,]{1,70})"?', re.IGNORECASE)
_NAME = re.compile(rb'\bname="([^"]*)"')
_FILENAME = re.compile(rb'filename="([^"]*)"')


class FileFacts(msgspec.Struct):
    """The file object of OpenAI's API: what clients see of a file, besides its content."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    object: str = "file"
    status: str = "processed"
    expires_at: int | None = None


_FACTS = json_decoder(FileFacts)


class SentFile(msgspec.Struct, frozen=True):
    """A file and its fields, as a client sends them in a multipart form."""

    filename: str
    purpose: str
    data: bytes


class StoredFiles:
    """The files of all clients. For each file there are two records of the same name: `facts` has its file object as
    JSON, `contents` its bytes."""

    def __init__(
        self, facts: Records, contents: Records, new_id: Callable[[], str], wall_clock: Callable[[], float]
    ) -> None:
        self._facts, self._contents, self._new_id, self._wall_clock = facts, contents, new_id, wall_clock

    async def add(self, client: str, sent: SentFile, hex_id: str = "") -> FileFacts:
        """Stores a file. hex_id: the end of the file's id; when it is empty, a new one is made. Raises HttpProblem
        (507) when there is no room."""
        name = "file-" + (hex_id or self._new_id())
        facts = FileFacts(name, len(sent.data), int(self._wall_clock()), sent.filename, sent.purpose)
        try:
            await keep(self._contents, client, name, sent.data, "file")
            await keep(self._facts, client, name, msgspec.json.encode(facts), "file")
        except HttpProblem:
            await asyncio.to_thread(self._contents.remove, client, name)
            raise
        return facts

    async def get(self, client: str, name: str) -> FileFacts:
        """Returns the file object of a file. Raises HttpProblem (404)."""
        data = await asyncio.to_thread(self._facts.get, client, name)
        if data is None:
            raise HttpProblem(_unknown(name))
        return _FACTS.decode(data)

    async def content(self, client: str, name: str) -> bytes:
        """Returns the content of a file. Raises HttpProblem (404)."""
        data = await asyncio.to_thread(self._contents.get, client, name)
        if data is None:
            raise HttpProblem(_unknown(name))
        return data

    async def listed(self, client: str, purpose: str | None) -> list[FileFacts]:
        """Returns all files of a client, newest first. purpose: only the files with this purpose; None for all."""
        names = await asyncio.to_thread(self._facts.names, client)
        found = [await self.get(client, name) for name in names]
        return [each for each in found if purpose in (None, each.purpose)]

    async def remove(self, client: str, name: str) -> None:
        """Deletes a file. Raises HttpProblem (404)."""
        if not await self.forget(client, name):
            raise HttpProblem(_unknown(name))

    async def forget(self, client: str, name: str) -> bool:
        """Deletes a file. Returns True when it existed."""
        found = await asyncio.to_thread(self._facts.remove, client, name)
        await asyncio.to_thread(self._contents.remove, client, name)
        return found


def read_form(content_type: str, body: bytes) -> SentFile:
    """Returns the file of a multipart form. Raises HttpProblem (400)."""
    boundary = _BOUNDARY.search(content_type.encode("latin-1", "replace"))
    if not content_type.lower().startswith("multipart/form-data") or boundary is None:
        raise HttpProblem(Problem(400, "A file is sent as multipart/form-data with a boundary.", param="file"))
    fields: dict[bytes, bytes] = {}
    filename = b""
    for part in body.split(b"--" + boundary[1])[1:-1]:
        head, gap, data = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = _NAME.search(head)
        if not gap or name is None:
            raise HttpProblem(Problem(400, "A part of the form has no name.", param="file"))
        fields[name[1]] = data.removesuffix(b"\r\n")
        if name[1] == b"file" and (found := _FILENAME.search(head)) is not None:
            filename = found[1]
    purpose = fields.get(b"purpose", b"").decode("utf-8", "replace")
    if b"file" not in fields:
        raise HttpProblem(Problem(400, "The form has no file.", param="file"))
    if purpose != BATCH:
        text = f"purpose must be {BATCH!r}, not {purpose[:60]!r}: files are kept for batches alone."
        raise HttpProblem(Problem(400, text, param="purpose"))
    return SentFile(filename.decode("utf-8", "replace")[:200] or "file.jsonl", purpose, fields[b"file"])


def file_json(facts: FileFacts) -> Any:
    """Returns the file object as JSON values."""
    return msgspec.to_builtins(facts)


def _unknown(name: str) -> Problem:
    return Problem(404, f"No such File object: {name[:200]}", param="id", code="file_not_found")
