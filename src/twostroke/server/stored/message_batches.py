"""Anthropic's message batches: requests of /v1/messages in one body, run as lines of a batch.

Source: https://docs.anthropic.com/en/api/creating-message-batches
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from twostroke.server.errors import MESSAGES_PATH, HttpProblem, Problem
from twostroke.server.gate.decode import body_kind
from twostroke.server.stored.batch_lines import MAX_LINES
from twostroke.server.stored.batches import OPEN, Batch, StoredBatches
from twostroke.server.stored.files import BATCH, SentFile, StoredFiles
from twostroke.types.reading.decoders import json_decoder

PREFIX = "msgbatch_"
WINDOW_S = 86_400
_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OBJECT = json_decoder(dict[str, Any])
_UNDONE = {"batch_cancelled": "canceled", "batch_expired": "expired"}
Json = dict[str, Any]


@body_kind
class AskedMessages(msgspec.Struct):
    """One request of a message batch. params: a body as for POST /v1/messages."""

    custom_id: str
    params: Json


@body_kind
class AskedMessageBatch(msgspec.Struct):
    """The body of POST /v1/messages/batches."""

    requests: list[AskedMessages]


class MessageBatches:
    """The batches of a server in Anthropic's form. Each batch has its own input file, which is deleted together with
    the batch."""

    def __init__(self, batches: StoredBatches, files: StoredFiles) -> None:
        self._batches, self._files = batches, files

    async def create(self, client: str, asked: AskedMessageBatch, base: str) -> Json:
        """Begin a batch. base: the server's address with a slash at its end. Raises HttpProblem (400, 507)."""
        lines = await asyncio.to_thread(_lines, asked.requests)
        file = await self._files.add(client, SentFile("requests.jsonl", BATCH, lines))
        batch = await self._batches.begin(client, file.id, MESSAGES_PATH, WINDOW_S, PREFIX)
        batch.request_counts.total = len(asked.requests)
        return shown(batch, base)

    async def get(self, client: str, name: str, base: str) -> Json:
        """Returns a batch. Raises HttpProblem (404)."""
        return shown(await self._found(client, name), base)

    async def listed(self, client: str, base: str) -> list[Json]:
        """Returns all batches of a client, newest first."""
        return [shown(each, base) for each in await self._batches.listed(client, PREFIX)]

    async def cancel(self, client: str, name: str, base: str) -> Json:
        """End a batch; results so far stay. Raises HttpProblem (404, 409)."""
        return shown(await self._batches.cancel(client, name, PREFIX), base)

    async def remove(self, client: str, name: str) -> None:
        """Forget a batch that has ended, its requests and its results. Raises HttpProblem (404, 409)."""
        batch = await self._found(client, name)
        if batch.status in OPEN:
            text = "The batch is in progress: cancel it first, and delete it when it has ended."
            raise HttpProblem(Problem(409, text))
        for file in (batch.input_file_id, batch.output_file_id, batch.error_file_id):
            if file is not None:
                await self._files.forget(client, file)
        await self._batches.remove(client, name)

    async def results(self, client: str, name: str) -> bytes:
        """Returns a line of JSON for each request, in any order. Raises HttpProblem (404) before the batch has ended.
        """
        batch = await self._found(client, name)
        if batch.status in OPEN:
            raise HttpProblem(Problem(404, "The batch has not ended: it has no results yet."))
        files = [file for file in (batch.output_file_id, batch.error_file_id) if file is not None]
        contents = [await self._files.content(client, file) for file in files]
        return await asyncio.to_thread(_results, contents)

    async def _found(self, client: str, name: str) -> Batch:
        return await self._batches.get(client, name, PREFIX)


def shown(batch: Batch, base: str) -> Json:
    """Returns a batch as Anthropic's clients read it. Until the end, all its requests count as in progress."""
    over, counts = batch.status not in OPEN, batch.request_counts
    cancelled, expired = (counts.not_run if batch.status == status else 0 for status in ("cancelled", "expired"))
    ended = batch.completed_at or batch.cancelled_at or batch.expired_at or batch.failed_at
    status = "ended" if over else "canceling" if batch.cancelling_at is not None else "in_progress"
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": {
            "processing": 0 if over else counts.total,
            "succeeded": counts.completed if over else 0,
            "errored": counts.failed - counts.not_run if over else 0,
            "canceled": cancelled,
            "expired": expired,
        },
        "ended_at": _time(ended),
        "created_at": _time(batch.created_at),
        "expires_at": _time(batch.expires_at),
        "archived_at": None,
        "cancel_initiated_at": _time(batch.cancelling_at),
        "results_url": f"{base}v1/messages/batches/{batch.id}/results" if over else None,
    }


def _lines(requests: list[AskedMessages]) -> bytes:
    """Returns the input file of a batch with these requests. Raises HttpProblem (400)."""
    _check(requests)
    return b"".join(
        msgspec.json.encode({"custom_id": each.custom_id, "url": MESSAGES_PATH, "body": each.params}) + b"\n"
        for each in requests
    )


def _results(files: list[bytes]) -> bytes:
    return b"".join(_result(line) for file in files for line in file.splitlines())


def _check(requests: list[AskedMessages]) -> None:
    """Raises HttpProblem (400) for requests that cannot be in a batch. The params of a request are checked only when it
    runs."""
    if not 0 < len(requests) <= MAX_LINES:
        raise HttpProblem(Problem(400, f"requests must have 1 to {MAX_LINES:,} entries.", param="requests"))
    seen: set[str] = set()
    for place, each in enumerate(requests):
        if not _CUSTOM_ID.fullmatch(each.custom_id):
            text = "custom_id must have 1 to 64 letters, digits, dashes and underscores."
            raise HttpProblem(Problem(400, text, param=f"requests[{place}].custom_id"))
        if each.custom_id in seen:
            text = f"Two requests have the custom_id {each.custom_id!r}."
            raise HttpProblem(Problem(400, text, param=f"requests[{place}].custom_id"))
        if each.params.get("stream"):
            raise HttpProblem(Problem(400, "A batch streams nothing.", param=f"requests[{place}].params.stream"))
        seen.add(each.custom_id)


def _result(line: bytes) -> bytes:
    made = _OBJECT.decode(line)
    response, error = made.get("response"), made.get("error") or {}
    result: Json = {"type": _UNDONE.get(str(error.get("code")), "errored")}
    if isinstance(response, dict):
        good = response["status_code"] == 200
        result = {"type": "succeeded", "message": response["body"]} if good else {**result, "error": response["body"]}
    return msgspec.json.encode({"custom_id": made["custom_id"], "result": result}) + b"\n"


def _time(at_s: int | None) -> str | None:
    """Returns seconds in the form of RFC 3339."""
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")
