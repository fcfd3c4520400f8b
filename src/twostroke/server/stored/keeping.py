"""Writes the records of stored work (responses, conversations, files, batches, chats), and refuses requests whose
records do not fit on the disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.stored.records import FullFolder, Records

log = logging.getLogger("twostroke.server")
MAX_METADATA = 16
NO_ROOM = 507
FULL_S = 5.0
"""The seconds after which finished work for which the disk had no room is written again."""


async def keep(records: Records, client: str, name: str, data: bytes, what: str) -> None:
    """Writes a record, in a thread. what: the noun in the error. Raises HttpProblem (507) when it cannot be written."""
    await guarded_write(lambda: records.put(client, name, data), what)


async def guarded_write(write: Callable[[], None], what: str) -> None:
    """Calls a function that writes a record, in a thread. Raises HttpProblem (507) when the record cannot be written.
    """
    try:
        await asyncio.to_thread(write)
    except (FullFolder, OSError) as error:
        raise HttpProblem(Problem(NO_ROOM, f"The {what} cannot be kept: {error}", code="storage_full")) from None


async def keep_at_last(write: Callable[[], Awaitable[None]]) -> None:
    """Calls `write`, which writes finished work. When the disk is full, calls it again until there is room, so that no
    work is lost."""
    told = False
    while True:
        try:
            return await write()
        except HttpProblem as error:
            if error.problem.status != NO_ROOM:
                raise
            if not told:
                log.warning("finished work waits for room: %s", error.problem.message)
            told = True
        await asyncio.sleep(FULL_S)


def require_metadata(metadata: Mapping[str, str] | None) -> None:
    """Raises HttpProblem (400) for metadata with more than MAX_METADATA entries."""
    if metadata is not None and len(metadata) > MAX_METADATA:
        raise HttpProblem(Problem(400, f"metadata has more than {MAX_METADATA} entries.", param="metadata"))
