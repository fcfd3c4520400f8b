"""Converts the items of a Responses request (messages, calls of all kinds, their outputs, thoughts) into chat messages.

The name of an unknown type decides whether the item counts as a call, as an output, or is left out. No item is refused
for its type, because items come from earlier turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twostroke.text.history.calls import TEXT_ARGUMENT
from twostroke.types.images import placed
from twostroke.types.notes import Notes, named

CALL, OUTPUT = "_call", "_call_output"
_ABOUT = ("type", "id", "call_id", "status", "name", "namespace", "output", "error")
"""In a tool call of Responses' input that has no field for the arguments, all keys but these are its arguments."""
Messages = list[dict[str, Any]]


def conversation(instructions: str | None, asked: str | list[dict[str, Any]] | None, notes: Notes) -> Messages:
    """Returns the chat messages of `instructions` and `input`."""
    made: Messages = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(asked, list):
        return made + chat_messages(asked, notes)
    return made if asked is None else [*made, {"role": "user", "content": asked}]


def chat_messages(items: Iterable[Mapping[str, Any]], notes: Notes) -> Messages:
    """Returns the chat messages of the items. Thoughts, texts and calls of one turn are one message."""
    made: Messages = []
    for place, item in enumerate(items):
        kind = str(item.get("type") or "message")
        if kind == "message":
            _add_message(made, {**item, "content": placed(item.get("content"), f"input[{place}].content")})
        elif kind == "reasoning":
            _add_thought(made, item)
        elif kind.endswith(OUTPUT):
            found = item.get("call_id") or item.get("id")
            output = placed(item.get("output"), f"input[{place}].output")
            made.append({"role": "tool", "tool_call_id": found, "content": output})
        elif kind.endswith(CALL) and (item.get("call_id") or item.get("name")):
            _add_call(made, kind, item)
        else:
            notes.add(f"an earlier item of the type {named(kind)} was left out")
    return [message for message in made if not _thought_alone(message)]


def _add_message(made: Messages, item: Mapping[str, Any]) -> None:
    role, content = item.get("role"), item.get("content")
    if role == "assistant" and _open(made) and made[-1]["content"] is None and "tool_calls" not in made[-1]:
        made[-1]["content"] = content  # the text follows the thought of the same message
    else:
        made.append({"role": role, "content": content})


def _add_thought(made: Messages, item: Mapping[str, Any]) -> None:
    parts = [*_list(item.get("content")), *_list(item.get("summary"))]
    texts = [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    if not texts:
        return
    if not _open(made):
        made.append({"role": "assistant", "content": None})
    before = made[-1].get("reasoning_content")
    made[-1]["reasoning_content"] = "\n".join([*([before] if before else []), *texts])


def _add_call(made: Messages, kind: str, item: Mapping[str, Any]) -> None:
    if not _open(made):
        made.append({"role": "assistant", "content": None})
    entry = {"id": item.get("call_id") or item.get("id"), "type": "function", "function": _function(kind, item)}
    made[-1].setdefault("tool_calls", []).append(entry)
    if kind == "mcp_call":  # the item also contains the output
        made.append({"role": "tool", "tool_call_id": entry["id"], "content": item.get("output") or item.get("error")})


def _function(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the name and the arguments of a call, whatever its kind."""
    name = item.get("name") or kind.removesuffix(CALL)
    if kind == "custom_tool_call":
        return {"name": name, "arguments": {TEXT_ARGUMENT: item.get("input") or ""}}
    if kind in ("function_call", "mcp_call"):
        return {"name": name if kind == "mcp_call" else item.get("name"), "arguments": item.get("arguments")}
    inner = item.get("action") or item.get("operation")
    if isinstance(inner, Mapping):
        return {"name": name, "arguments": dict(inner)}
    return {"name": name, "arguments": {key: value for key, value in item.items() if key not in _ABOUT}}


def _thought_alone(message: Mapping[str, Any]) -> bool:
    return message["content"] is None and "reasoning_content" in message and "tool_calls" not in message


def _open(made: Messages) -> bool:
    """Returns True when the last message is the assistant's, so that a thought, a text or a call that follows can
    become part of it."""
    return bool(made) and made[-1]["role"] == "assistant"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
