"""All work that one server stores, in one folder: responses, conversations, files, batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from starlette.types import ASGIApp

from twostroke.server.stored.batches import StoredBatches
from twostroke.server.stored.conversations import StoredConversations
from twostroke.server.stored.files import StoredFiles
from twostroke.server.stored.inner import InnerCalls, MayRun, at_any_time
from twostroke.server.stored.message_batches import MessageBatches
from twostroke.server.stored.records import Bounds, Records, require_writable
from twostroke.server.stored.responses import StoredResponses

JSON_SUFFIX, CONTENT_SUFFIX, EVENTS_SUFFIX = ".json", ".bin", ".sse"


class StoredWork:
    """The work that one server stores: responses, conversations, files and batches. Raises ConfigError when the folder
    cannot be written. bounds: the most bytes, the most records and the greatest age, for each client and each kind of
    record. width: how many lines of batches run at a time."""

    def __init__(
        self,
        folder: Path,
        bounds: Bounds,
        new_id: Callable[[], str],
        wall_clock: Callable[[], float] = time.time,
        width: int = 8,
    ) -> None:
        require_writable(folder, "stored work", "--stored-work")

        def records(kind: str, suffix: str, *, forget_oldest: bool) -> Records:
            return Records(folder / kind, suffix, bounds, wall_clock, forget_oldest=forget_oldest)

        self.calls = InnerCalls()
        talks = records("conversations", JSON_SUFFIX, forget_oldest=True)
        self.conversations = StoredConversations(talks, new_id, wall_clock)
        kept = records("responses", JSON_SUFFIX, forget_oldest=True)
        events = records("events", EVENTS_SUFFIX, forget_oldest=True)
        self.responses = StoredResponses(kept, events, self.conversations, self.calls, new_id)
        facts = records("files", JSON_SUFFIX, forget_oldest=False)
        contents = records("contents", CONTENT_SUFFIX, forget_oldest=False)
        self.files = StoredFiles(facts, contents, new_id, wall_clock)
        batches = records("batches", JSON_SUFFIX, forget_oldest=False)
        self.batches = StoredBatches(
            batches, folder / "journals", self.files, self.calls, new_id, wall_clock, width
        )
        self.message_batches = MessageBatches(self.batches, self.files)

    def attach(self, app: ASGIApp, stopping: Callable[[], bool], may_run: MayRun = at_any_time) -> None:
        """Lets batches and background responses send their requests to this app. stopping: returns True when the server
        takes no more work. may_run: returns True when batch work of a model may be run now."""
        self.calls.app = app
        self.batches.stopping, self.batches.may_run = stopping, may_run

    async def resume(self) -> None:
        """Continues the work that an earlier server has left. Called once, when the server listens."""
        await asyncio.sleep(0)
        self.batches.resume()
