"""Stored conversations: items with ids, which responses read and add to.

Source: https://platform.openai.com/docs/api-reference/conversations
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.decode import body_kind
from twostroke.server.stored.items import items_of
from twostroke.server.stored.keeping import keep, require_metadata
from twostroke.server.stored.records import Records
from twostroke.types.reading.decoders import json_decoder

MAX_NEW_ITEMS = 20
Json = dict[str, Any]


@body_kind
class AskedConversation(msgspec.Struct):
    """The body of POST /v1/conversations, and of POST /v1/conversations/ID, which takes only metadata."""

    items: list[Json] | None = None
    metadata: dict[str, str] | None = None


@body_kind
class AskedItems(msgspec.Struct):
    """The body of POST /v1/conversations/ID/items, which adds items to a conversation."""

    items: list[Json]


class ConversationRecord(msgspec.Struct):
    """A stored conversation."""

    id: str
    created_at: int
    items: list[Json] = []
    metadata: dict[str, str] = {}

    def shown(self) -> Json:
        """Returns the conversation object for clients."""
        return {"id": self.id, "object": "conversation", "created_at": self.created_at, "metadata": self.metadata}


_RECORD = json_decoder(ConversationRecord)


class StoredConversations:
    """All stored conversations. For one event loop."""

    def __init__(self, records: Records, new_id: Callable[[], str], wall_clock: Callable[[], float]) -> None:
        self._records, self._new_id, self._wall_clock = records, new_id, wall_clock
        self._changing = asyncio.Lock()

    async def create(self, client: str, asked: AskedConversation) -> ConversationRecord:
        """Store a new conversation. Raises HttpProblem (400, 507)."""
        require_metadata(asked.metadata)
        made = ConversationRecord("conv_" + self._new_id(), int(self._wall_clock()), metadata=asked.metadata or {})
        made.items = items_of(asked.items or [], self._new_id)
        await self._keep(client, made)
        return made

    async def get(self, client: str, name: str) -> ConversationRecord:
        """Returns a conversation. Raises HttpProblem (404)."""
        data = await asyncio.to_thread(self._records.get, client, name)
        try:
            found = None if data is None else _RECORD.decode(data)
        except msgspec.MsgspecError:
            found = None  # a damaged record counts as missing
        if found is None:
            text = f"Conversation with id {name[:200]!r} not found. It was not stored, or was removed."
            raise HttpProblem(Problem(404, text, param="conversation", code="not_found"))
        return found

    async def rename(self, client: str, name: str, asked: AskedConversation) -> ConversationRecord:
        """Replaces a conversation's metadata. Raises HttpProblem (400, 404, 507)."""
        require_metadata(asked.metadata)
        if asked.items is not None:
            text = "items are added by POST /v1/conversations/ID/items."
            raise HttpProblem(Problem(400, text, param="items"))
        async with self._changing:
            found = await self.get(client, name)
            found.metadata = asked.metadata or {}
            await self._keep(client, found)
        return found

    async def remove(self, client: str, name: str) -> None:
        """Forget a conversation. Responses that were made in it stay. Raises HttpProblem (404)."""
        async with self._changing:
            await self.get(client, name)
            await asyncio.to_thread(self._records.remove, client, name)

    async def add(self, client: str, name: str, given: list[Json]) -> list[Json]:
        """Add items as a client sends them, and return them with their ids. Raises HttpProblem (400, 404, 507)."""
        if not 0 < len(given) <= MAX_NEW_ITEMS:
            raise HttpProblem(Problem(400, f"items must have 1 to {MAX_NEW_ITEMS} entries.", param="items"))
        made = items_of(given, self._new_id)
        await self.extend(client, name, made)
        return made

    async def extend(self, client: str, name: str, items: list[Json]) -> None:
        """Add items that have ids. Raises HttpProblem (404, 507)."""
        async with self._changing:
            found = await self.get(client, name)
            found.items += items
            await self._keep(client, found)

    async def item(self, client: str, name: str, item: str) -> Json:
        """Returns one item of a conversation. Raises HttpProblem (404)."""
        for each in (await self.get(client, name)).items:
            if each.get("id") == item:
                return each
        raise HttpProblem(_unknown_item(item))

    async def remove_item(self, client: str, name: str, item: str) -> ConversationRecord:
        """Remove one item, and return the conversation. Raises HttpProblem (404, 507)."""
        async with self._changing:
            found = await self.get(client, name)
            left = [each for each in found.items if each.get("id") != item]
            if len(left) == len(found.items):
                raise HttpProblem(_unknown_item(item))
            found.items = left
            await self._keep(client, found)
        return found

    async def _keep(self, client: str, made: ConversationRecord) -> None:
        await keep(self._records, client, made.id, msgspec.json.encode(made), "conversation")


def _unknown_item(item: str) -> Problem:
    return Problem(404, f"Item with id {item[:200]!r} not found.", param="item_id", code="not_found")
