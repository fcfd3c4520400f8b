"""Converts Anthropic's messages into chat messages: blocks of text, calls, results, thoughts, and of any other type.

text/templates/messages.py decides, for all APIs, which blocks of other types are accepted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from twostroke.types.images import placed
from twostroke.types.notes import Notes, named

ROLES = ("user", "assistant", "system")
CALLS = ("tool_use", "mcp_tool_use")
RESULTS = ("tool_result", "mcp_tool_result")
Messages = list[dict[str, Any]]


def chat_messages(messages: Iterable[tuple[str, Any]], notes: Notes) -> Messages:
    """Returns the chat messages of (role, content) pairs."""
    made: Messages = []
    for place, (role, content) in enumerate(messages):
        if role not in ROLES:
            notes.add(f"an earlier message with the role {named(role)} was taken for a user's")
            role = "user"
        if isinstance(content, list):
            _add_blocks(made, role, placed(content, f"messages[{place}].content"), f"messages[{place}].content")
        else:
            made.append({"role": role, "content": content})
    return made


def _add_blocks(made: Messages, role: str, blocks: list[Any], where: str) -> None:
    """Add the blocks of a message. The results of calls become messages of their own, before the rest of the message.
    where: the name of the blocks' field."""
    parts: list[Any] = []
    calls: list[dict[str, Any]] = []
    for index, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind in RESULTS:
            content = placed(block.get("content"), f"{where}[{index}].content")
            made.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content})
        elif kind in CALLS and role == "assistant":
            calls.append(_call(block))
        else:
            parts.append(block)
    if parts or calls or not blocks:
        content = parts if parts or not calls else None
        made.append({"role": role, "content": content, **({"tool_calls": calls} if calls else {})})


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    given = block.get("input")
    arguments = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
    return {
        "id": block.get("id"),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": arguments},
    }
