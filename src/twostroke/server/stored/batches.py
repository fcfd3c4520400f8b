"""Batches: files of requests that run when nobody else waits, and go on after restarts.

Each line's result is written to a journal as soon as it is there, in one write. After a restart only lines that are not
in the journal run. When the disk is full, a batch waits until there is room again, and no result is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import itertools
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.decode import body_kind
from twostroke.server.stored.batch_lines import (
    ENDPOINTS,
    BatchLine,
    Journal,
    LineError,
    body_of,
    failed_line,
    read_lines,
    result_line,
    undone_line,
)
from twostroke.server.stored.files import OUTPUT, SentFile, StoredFiles
from twostroke.server.stored.inner import InnerCalls, MayRun, at_any_time
from twostroke.server.stored.keeping import FULL_S, NO_ROOM, keep, require_metadata
from twostroke.server.stored.records import Records
from twostroke.types.reading.decoders import json_decoder

log = logging.getLogger("twostroke.server")
_WINDOW = re.compile(r"([1-9][0-9]{0,4})([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
OPEN = ("validating", "in_progress", "finalizing", "cancelling")
PREFIX = "batch_"
LOOK_S = 0.25


@body_kind
class AskedBatch(msgspec.Struct):
    """The body of POST /v1/batches."""

    input_file_id: str
    endpoint: str
    completion_window: str = "24h"
    metadata: dict[str, str] | None = None


class LineCounts(msgspec.Struct):
    """Counts of a batch's lines. not_run: how many of the failed lines were not run, because the batch was cancelled or
    expired."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    not_run: int = 0


class Batch(msgspec.Struct):
    """A batch in the form that clients get."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: int
    expires_at: int
    status: str = "validating"
    object: str = "batch"
    errors: dict[str, Any] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: LineCounts = msgspec.field(default_factory=LineCounts)
    metadata: dict[str, str] | None = None


_BATCH = json_decoder(Batch)


class StoredBatches:
    """The batches of all clients, for one event loop. width: how many lines run at a time. stopping: returns True when
    the server takes no more work. may_run: returns True when a line of this model may be run now."""

    def __init__(
        self,
        records: Records,
        journals: Path,
        files: StoredFiles,
        calls: InnerCalls,
        new_id: Callable[[], str],
        wall_clock: Callable[[], float],
        width: int = 8,
    ) -> None:
        self._records, self._journals, self._files, self._calls = records, journals, files, calls
        self._new_id, self._wall_clock, self._width = new_id, wall_clock, width
        self._turn = asyncio.Lock()  # one batch at a time: a second batch would only delay the lines of the first
        self._writing, self._cancelling = asyncio.Lock(), asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._running: dict[tuple[str, str], Batch] = {}  # current batches; their records hold the state at their begin
        self.stopping: Callable[[], bool] = lambda: False
        self.may_run: MayRun = at_any_time

    def resume(self) -> None:
        """Continues all batches that have not ended."""
        for client in self._records.clients():
            for name in reversed(self._records.names(client)):
                data = self._records.get(client, name)
                batch = None if data is None else _read(data)
                if batch is not None and batch.status in OPEN:
                    self._start(client, batch)
                elif batch is not None:
                    self._journal(batch).remove()  # a server was killed before it removed the journal

    async def create(self, client: str, asked: AskedBatch) -> Batch:
        """Begins a batch that a client asks for with POST /v1/batches. Raises HttpProblem (400, 404, 507)."""
        window = _WINDOW.fullmatch(asked.completion_window)
        if asked.endpoint not in ENDPOINTS:
            raise _wrong(f"endpoint must be one of {', '.join(ENDPOINTS)}.", "endpoint")
        if window is None:
            raise _wrong("completion_window must be a time such as 24h.", "completion_window")
        require_metadata(asked.metadata)
        await self._files.get(client, asked.input_file_id)
        window_s = int(window[1]) * _UNIT_S[window[2]]
        batch = self._new(asked.input_file_id, asked.endpoint, window_s, PREFIX)
        batch.completion_window, batch.metadata = asked.completion_window, asked.metadata
        return await self._begun(client, batch)

    async def begin(self, client: str, file: str, endpoint: str, window_s: int, prefix: str) -> Batch:
        """Begins a batch of Anthropic's API of message batches. file: the id of the file with its lines. window_s: the
        time in which it must end. prefix: the beginning of the batch's id. Raises HttpProblem (507)."""
        return await self._begun(client, self._new(file, endpoint, window_s, prefix))

    def _new(self, file: str, endpoint: str, window_s: int, prefix: str) -> Batch:
        now = int(self._wall_clock())
        return Batch(prefix + self._new_id(), endpoint, file, f"{window_s}s", now, now + window_s)

    async def _begun(self, client: str, batch: Batch) -> Batch:
        await self._keep(client, batch)
        self._start(client, batch)
        return batch

    async def get(self, client: str, name: str, prefix: str = PREFIX) -> Batch:
        """Returns a batch. prefix: the beginning of the ids of batches in the API that asks. Raises HttpProblem (404).
        """
        running = self._running.get((client, name)) if name.startswith(prefix) else None
        if running is not None and running.status in OPEN:  # a batch counts as ended when its record is written
            return copy.deepcopy(running)
        data = await asyncio.to_thread(self._records.get, client, name) if name.startswith(prefix) else None
        batch = None if data is None else _read(data)
        if batch is None:
            raise HttpProblem(Problem(404, f"No batch with the id {name[:200]!r}.", param="batch_id", code="not_found"))
        return batch

    async def listed(self, client: str, prefix: str = PREFIX) -> list[Batch]:
        """Returns all batches of a client, newest first. prefix: the beginning of the ids of batches in the API that
        asks."""
        names = await asyncio.to_thread(self._records.names, client)
        found = [await self.get(client, name, prefix) for name in names if name.startswith(prefix)]
        return sorted(found, key=lambda batch: (batch.created_at, batch.id), reverse=True)

    async def remove(self, client: str, name: str) -> None:
        """Deletes the record of a batch. The caller makes sure that the batch has ended."""
        await asyncio.to_thread(self._records.remove, client, name)

    async def cancel(self, client: str, name: str, prefix: str = PREFIX) -> Batch:
        """Cancels a batch; the results of lines that are done stay. Raises HttpProblem (404, 409)."""
        return await asyncio.shield(self._cancel(client, name, prefix))  # a client that leaves must not interrupt this

    async def _cancel(self, client: str, name: str, prefix: str) -> Batch:
        async with self._cancelling:
            await self.get(client, name, prefix)
            old = self._tasks.pop(name, None)
            if old is not None:
                old.cancel()
                await asyncio.wait([old])
            async with self._writing:  # waits until a write that has begun is complete
                pass
            batch = await self.get(client, name, prefix)  # the batch may have ended meanwhile
            self._running.pop((client, name), None)
            if batch.status not in OPEN:
                raise HttpProblem(Problem(409, f"The batch is {batch.status} already.", param="batch_id"))
            if batch.cancelling_at is None:
                batch.status, batch.cancelling_at = "cancelling", int(self._wall_clock())
            with contextlib.suppress(HttpProblem):  # disk full: its task writes it when there is room
                await self._keep(client, batch)
            self._start(client, batch)
            return copy.deepcopy(batch)

    async def idle(self) -> None:
        """Waits until no batch runs."""
        while self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _start(self, client: str, batch: Batch) -> None:
        task = asyncio.create_task(self._guarded(client, batch))
        self._tasks[batch.id], self._running[client, batch.id] = task, batch

        def over(done: asyncio.Task[None]) -> None:
            if self._tasks.get(batch.id) is done:
                del self._tasks[batch.id], self._running[client, batch.id]

        task.add_done_callback(over)

    async def _guarded(self, client: str, batch: Batch) -> None:
        try:
            while not await self._tried(client, batch):
                await asyncio.sleep(FULL_S)
        except Exception as error:
            log.exception("a batch failed", extra={"batch": batch.id})
            errors = [LineError("internal_error", f"The batch could not be run: {type(error).__name__}.")]
            batch.errors = {"object": "list", "data": msgspec.to_builtins(errors)}
            batch.status, batch.failed_at = "failed", int(self._wall_clock())
            with contextlib.suppress(HttpProblem):
                await self._keep(client, batch)

    async def _tried(self, client: str, batch: Batch) -> bool:
        """Runs a batch until it ends or the server stops. Returns False when the disk had no room for the results: the
        caller tries again later."""
        try:
            async with self._turn:
                await self._run(client, batch)
        except Exception as error:
            why = _no_room(error)
            if not why:
                raise
            if batch.errors is None:
                log.warning("a batch waits for room: %s", why, extra={"batch": batch.id})
            batch.errors = {"object": "list", "data": [msgspec.to_builtins(LineError("storage_full", why))]}
            if batch.status not in OPEN:  # the record with the end of the batch is not written yet
                batch.status = "finalizing"
            return self.stopping()
        return True

    async def _run(self, client: str, batch: Batch) -> None:
        await self._keep(client, batch)  # written before any computation, to learn whether there is room
        batch.errors = None
        try:
            data = await self._files.content(client, batch.input_file_id)
        except HttpProblem:
            lines, errors = list[BatchLine](), [LineError("file_not_found", "The input file is gone.")]
        else:
            lines, errors = await asyncio.to_thread(read_lines, data, batch.endpoint)
        if errors:
            batch.errors = {"object": "list", "data": msgspec.to_builtins(errors)}
            batch.status, batch.failed_at = "failed", int(self._wall_clock())
            await self._keep(client, batch)
            return
        if batch.status == "validating":
            batch.status, batch.in_progress_at = "in_progress", int(self._wall_clock())
            await self._keep(client, batch)
        journal = self._journal(batch)
        done = await asyncio.to_thread(journal.opened)
        failed = sum(map(failed_line, done.values()))
        batch.request_counts = LineCounts(len(lines), len(done) - failed, failed)
        if batch.status == "in_progress":
            left = [line for line in lines if line.custom_id not in done]
            left.sort(key=lambda line: (line.model, msgspec.json.encode(line.body)))  # equal prefixes come together
            for _, of_model in itertools.groupby(left, lambda line: line.model):  # models run one after the other
                await self._lines(client, batch, list(of_model), journal)
            if self.stopping():
                return  # the rest runs after the restart
            done = await asyncio.to_thread(journal.opened)
        await self._finalize(client, batch, lines, done)
        journal.remove()

    async def _lines(self, client: str, batch: Batch, lines: list[BatchLine], journal: Journal) -> None:
        waiting = iter(lines)

        async def work() -> None:
            for line in waiting:
                if self._over(batch):
                    return
                result = await self._line(client, batch, line)
                if result is None:
                    return
                journal.add(result)
                batch.request_counts.failed += failed_line(result)
                batch.request_counts.completed += not failed_line(result)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._width, len(lines))):
                group.create_task(work())

    async def _line(self, client: str, batch: Batch, line: BatchLine) -> bytes | None:
        """Runs one line of a batch and returns its result. Returns None when the server takes no more work, or when the
        batch's time is over."""
        while True:
            while not await self.may_run(line.model):
                if self._over(batch):
                    return None
                await asyncio.sleep(LOOK_S)
            reply = await self._calls.post(line.url, body_of(line), client)
            if reply.status >= 500 and self.stopping():
                return None
            if reply.retry_s is None:
                return result_line(line, reply, "batch_req_" + self._new_id())
            if self._over(batch):
                return None
            await asyncio.sleep(reply.retry_s)

    def _over(self, batch: Batch) -> bool:
        return self.stopping() or self._wall_clock() >= batch.expires_at

    async def _finalize(self, client: str, batch: Batch, lines: list[BatchLine], done: dict[str, bytes]) -> None:
        cancelled = batch.cancelling_at is not None
        if batch.finalizing_at is None:
            batch.finalizing_at = int(self._wall_clock())
        ended = "cancelled" if cancelled else "completed" if len(done) >= len(lines) else "expired"
        code = "batch_cancelled" if cancelled else "batch_expired"
        good, bad = list[bytes](), list[bytes]()
        for line in lines:
            found = done.get(line.custom_id) or undone_line(line, "batch_req_" + self._new_id(), code)
            (bad if failed_line(found) else good).append(found)
        if good:
            batch.output_file_id = await self._file(client, f"{batch.id}_output.jsonl", good)
        if bad:
            batch.error_file_id = await self._file(client, f"{batch.id}_error.jsonl", bad)
        not_run = sum(line.custom_id not in done for line in lines)
        batch.request_counts = LineCounts(len(lines), len(good), len(bad), not_run)
        batch.status = ended
        setattr(batch, f"{ended}_at", int(self._wall_clock()))
        await self._keep(client, batch)

    async def _file(self, client: str, name: str, lines: list[bytes]) -> str:
        """Stores an output file and returns its id. The id is computed from the name, so that a server that was killed
        after it made the file makes no second one."""
        digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
        return (await self._files.add(client, SentFile(name, OUTPUT, b"".join(lines)), digest)).id

    async def _keep(self, client: str, batch: Batch) -> None:
        """Writes the batch's record. A write that has begun goes on when the caller is cancelled, so that the latest
        state is always written last."""
        await asyncio.shield(self._kept(client, batch.id, msgspec.json.encode(batch)))

    async def _kept(self, client: str, name: str, data: bytes) -> None:
        async with self._writing:
            await keep(self._records, client, name, data, "batch")

    def _journal(self, batch: Batch) -> Journal:
        return Journal(self._journals / f"{batch.id}.jsonl")


def _no_room(error: Exception) -> str:
    """Returns a text for clients if the error means that the disk could not take the results; "" for all other errors.
    """
    if isinstance(error, ExceptionGroup):
        found = [_no_room(each) for each in error.exceptions]
        return found[0] if all(found) else ""
    if isinstance(error, HttpProblem) and error.problem.status == NO_ROOM:
        return error.problem.message
    return f"The results cannot be written: {error}." if isinstance(error, OSError) else ""


def _read(data: bytes) -> Batch | None:
    try:
        return _BATCH.decode(data)
    except msgspec.MsgspecError:
        return None


def _wrong(text: str, param: str) -> HttpProblem:
    return HttpProblem(Problem(400, text, param=param))
