"""Writes records, and refuses requests whose records do not fit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.stored.records import FullFolder, Records

MAX_METADATA = 16


async def keep(records: Records, client: str, name: str, data: bytes, what: str) -> None:
    """Write a record, in a thread. what: the noun in the error. Raises HttpProblem (507) when it cannot be written."""
    await guarded_write(lambda: records.put(client, name, data), what)


async def guarded_write(write: Callable[[], None], what: str) -> None:
    """Call a function that writes a record, in a thread. Raises HttpProblem (507) when the record cannot be written."""
    try:
        await asyncio.to_thread(write)
    except (FullFolder, OSError) as error:
        raise HttpProblem(Problem(507, f"The {what} cannot be kept: {error}", code="storage_full")) from None


def require_metadata(metadata: Mapping[str, str] | None) -> None:
    """Raises HttpProblem (400) for more entries than are kept."""
    if metadata is not None and len(metadata) > MAX_METADATA:
        raise HttpProblem(Problem(400, f"metadata has more than {MAX_METADATA} entries.", param="metadata"))
