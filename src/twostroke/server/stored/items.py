"""Conversations and their items, as clients of OpenAI's API send them and read them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def shown_conversation(asked: str | dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the field of a response. asked: the field of the request, which is a name or an object with a name."""
    return {"id": asked} if isinstance(asked, str) else asked


def items_of(given: Any, new_id: Callable[[], str]) -> list[Any]:
    """Returns an input as items with ids and types. Values that are no items are left out: the reader of requests
    refuses them."""
    listed = [{"role": "user", "content": given}] if isinstance(given, str) else given
    made: list[Any] = []
    for item in listed if isinstance(listed, list) else []:
        if not isinstance(item, dict):
            continue
        kind = item.get("type") or "message"
        content = item.get("content")
        if kind == "message" and isinstance(content, str):
            written = "output_text" if item.get("role") == "assistant" else "input_text"
            item = {**item, "content": [{"type": written, "text": content}]}
        made.append({"id": f"{'msg' if kind == 'message' else 'item'}_{new_id()}", **item, "type": kind})
    return made
