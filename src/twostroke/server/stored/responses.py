"""Stored responses: later responses continue them, clients ask for them again, and some run in the background.

A record has the whole conversation up to its answer, so that it needs no other record.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import msgspec

from twostroke.server.errors import HttpProblem, Problem, unknown_response
from twostroke.server.stored.conversations import StoredConversations
from twostroke.server.stored.event_log import EventLog, kept_log
from twostroke.server.stored.inner import InnerCalls, InnerReply
from twostroke.server.stored.items import items_of, shown_conversation
from twostroke.server.stored.keeping import keep, keep_at_last
from twostroke.server.stored.records import Records
from twostroke.types.reading.decoders import json_decoder

PATH = "/v1/responses"
RUNNING = ("queued", "in_progress")
TERMINAL = (b"event: response.completed\n", b"event: response.incomplete\n", b"event: response.failed\n")
_OWN_FIELDS = ("background", "previous_response_id", "conversation")
Json = dict[str, Any]


class ResponseRecord(msgspec.Struct):
    """A stored response. response: the response object that clients see. items: the input of this request. before: all
    items of the responses before it. conversation: the name of the conversation to which items and answer are added."""

    response: Json
    items: list[Any]
    before: list[Any] = []
    conversation: str | None = None


_RECORD = json_decoder(ResponseRecord)


class StoredResponses:
    """The stored responses of all clients, for one event loop. events: the records of the streams of background
    responses, by the ids of the responses."""

    def __init__(
        self,
        records: Records,
        events: Records,
        conversations: StoredConversations,
        calls: InnerCalls,
        new_id: Callable[[], str],
    ) -> None:
        self._records, self._events, self._conversations = records, events, conversations
        self._calls, self._new_id = calls, new_id
        self._running: dict[str, asyncio.Task[None]] = {}
        self._logs: dict[str, EventLog] = {}  # logs of responses that run and are streamed

    async def joined(self, body: Json, client: str) -> tuple[Json, ResponseRecord]:
        """Returns the body with all items of the conversation, and the record that its answer goes into.

        Raises HttpProblem (400) for a previous response that is not stored.
        """
        items = items_of(body.get("input"), self._new_id)
        previous, conversation = body.get("previous_response_id"), body.get("conversation")
        if conversation is not None:
            if previous is not None:
                text = "A request has either previous_response_id or conversation."
                raise HttpProblem(Problem(400, text, param="conversation"))
            name = str((shown_conversation(conversation) or {}).get("id"))
            before = list[Any]((await self._conversations.get(client, name)).items)
            return {**body, "input": [*before, *items]}, ResponseRecord({}, items, before, name)
        if previous is None:
            return body, ResponseRecord({}, items)
        found = await self._read(client, str(previous))
        if found is None:
            raise HttpProblem(unknown_previous(str(previous)))
        if found.response.get("status") in RUNNING:
            raise HttpProblem(
                Problem(400, f"The response {previous!r} is not complete.", param="previous_response_id")
            )
        before = [*found.before, *found.items, *found.response.get("output", [])]
        return {**body, "input": [*before, *items]}, ResponseRecord({}, items, before)

    async def keep(self, client: str, record: ResponseRecord) -> None:
        """Writes a record. Raises HttpProblem when it cannot be written."""
        data = await asyncio.to_thread(msgspec.json.encode, record)
        await keep(self._records, client, record.response["id"], data, "response")

    async def finish(self, client: str, record: ResponseRecord) -> None:
        """Writes the record of a complete answer, and adds it to its conversation. Raises HttpProblem."""
        await self.keep(client, record)
        if record.conversation is not None:
            made = [*record.items, *record.response.get("output", [])]
            await self._conversations.extend(client, record.conversation, made)

    async def log(self, client: str, name: str) -> EventLog:
        """Returns the events of a response that was streamed in the background. Raises HttpProblem (400, 404)."""
        running = self._logs.get(name)
        await self.get(client, name)
        if running is not None:
            return running
        kept = await asyncio.to_thread(self._events.get, client, name)
        if kept is None:
            text = "Only a response that was made with background: true and stream: true can be streamed again."
            raise HttpProblem(Problem(400, text, param="stream"))
        return kept_log(kept)

    async def get(self, client: str, name: str) -> ResponseRecord:
        """Returns a record. A response whose work was ended by a restart of the server has the status failed. Raises
        HttpProblem (404)."""
        found = await self._read(client, name)
        if found is None:
            raise HttpProblem(unknown_response(name, server_keeps=True))
        if found.response.get("status") in RUNNING and name not in self._running:
            error = {"code": "server_error", "message": "The server was started again while this response was made."}
            found.response |= {"status": "failed", "error": error}
            with contextlib.suppress(HttpProblem):  # a full disk raises this each time
                await self.keep(client, found)
        return found

    async def remove(self, client: str, name: str) -> None:
        """Deletes a response. A running one is ended. Raises HttpProblem (404)."""
        task = self._running.pop(name, None)
        if task is not None:
            task.cancel()
        await asyncio.to_thread(self._events.remove, client, name)
        if not await asyncio.to_thread(self._records.remove, client, name):
            raise HttpProblem(unknown_response(name, server_keeps=True))

    async def begin(self, body: Json, record: ResponseRecord, client: str) -> Json:
        """Starts a request in the background, and returns the response as it is now. Raises HttpProblem when it cannot
        be stored."""
        name = "resp_" + self._new_id()
        record.response = begun_response(body, name)
        await self.keep(client, record)
        if body.get("stream"):
            begun = dict(record.response)
            self._logs[name] = EventLog(lambda response: as_begun(response, begun))
        # The body contains all items. The request to the server itself names no kept work and leaves none.
        asked = {key: value for key, value in body.items() if key not in _OWN_FIELDS}
        task = asyncio.create_task(self._run({**asked, "store": False}, record, client))
        self._running[name] = task
        task.add_done_callback(lambda _done: self._over(name))
        return dict(record.response)

    def _over(self, name: str) -> None:
        self._running.pop(name, None)
        log = self._logs.pop(name, None)
        if log is not None:
            log.end()

    async def cancel(self, client: str, name: str) -> Json:
        """Ends a response that runs in the background. A response that has ended is not changed. Raises HttpProblem."""
        found = await self.get(client, name)
        if not found.response.get("background"):
            text = "Only responses that run in the background can be cancelled."
            raise HttpProblem(Problem(400, text, param="response_id"))
        task = self._running.pop(name, None)
        if task is not None and found.response.get("status") in RUNNING:
            task.cancel()
            found.response["status"] = "cancelled"
            await self.keep(client, found)
        return found.response

    async def _run(self, body: Json, record: ResponseRecord, client: str) -> None:
        name = record.response["id"]
        record.response["status"] = "in_progress"
        with contextlib.suppress(HttpProblem):
            await self.keep(client, record)
        log = self._logs.get(name)
        take = None if log is None else log.take
        while (reply := await self._calls.post(PATH, body, client, take)).retry_s is not None:
            await asyncio.sleep(reply.retry_s or 1.0)
        if log is None:
            record.response = finished_response(reply, record.response)
        else:
            record.response = log.response or finished_response(reply, record.response)
            if log.response is None:
                log.fail(record.response)
            text = log.text()
            await keep_at_last(lambda: keep(self._events, client, name, text, "events of a response"))
        await keep_at_last(lambda: self.finish(client, record))

    async def _read(self, client: str, name: str) -> ResponseRecord | None:
        data = await asyncio.to_thread(self._records.get, client, name)
        try:
            return None if data is None else _RECORD.decode(data)
        except msgspec.MsgspecError:
            return None  # a damaged record counts as missing


def begun_response(body: Json, name: str) -> Json:
    """Returns the response object of a background response that has not begun. body: the request. name: the id of the
    response."""
    return {
        "id": name,
        "object": "response",
        "created_at": int(time.time()),
        "status": "queued",
        "background": True,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": body.get("model"),
        "conversation": shown_conversation(body.get("conversation")),
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "store": True,
        "temperature": body.get("temperature"),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p"),
        "truncation": body.get("truncation") or "disabled",
        "usage": None,
        "user": body.get("user"),
    }


def as_begun(made: Json, begun: Json) -> Json:
    """Returns a finished response with the id that the client got at the beginning. made: the response of the request
    that the server sent to itself. begun: the response object that the client got."""
    return {**made, **{name: begun[name] for name in ("id", "created_at", "store", *_OWN_FIELDS)}}


def finished_response(reply: InnerReply, begun: Json) -> Json:
    """Returns the final response object of a background response: the answer, or the reason why there is none."""
    made = reply.json
    if reply.status == 200 and isinstance(made, dict):
        return as_begun(made, begun)
    error = made.get("error") if isinstance(made, dict) else None
    told = error if isinstance(error, dict) else {}
    failed = {"code": told.get("code") or "server_error", "message": told.get("message") or "The request failed."}
    return {**begun, "status": "failed", "error": failed}


def unknown_previous(name: str) -> Problem:
    """Returns 400 for a previous_response_id that is not stored, as OpenAI's server does."""
    return Problem(
        400,
        f"Previous response with id {name[:200]!r} not found. It was not stored, or was removed.",
        param="previous_response_id",
        code="previous_response_not_found",
    )
