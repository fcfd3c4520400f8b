"""Describes shapes of conversations that some templates do not accept, and how to write each in another shape.

Whether a template accepts the shape is tried: a small conversation of that shape is rendered, and each of its words
must be found, in order. The template's source is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Message = dict[str, Any]
Messages = list[Message]
SYSTEMS = ("system", "developer")
GAP = "\n\n"
"""The text between two texts that become one message."""


class Probe(NamedTuple):
    """A conversation, and the words that must be found in its rendering. absent: a word that must not be found.

    ordered: True where the words must stand in their order. Some templates write the text next to a call after the
    results.
    """

    messages: Messages
    words: tuple[str, ...]
    absent: str = ""
    ordered: bool = True


class Repair(NamedTuple):
    """A shape of conversations that some templates do not accept, and how to write it in another shape. note: a
    description of the change, for the header of the answer; empty where the change alters nothing that a model sees.

    concerns: returns whether a conversation has this shape. probe: a small conversation of this shape. change: returns
    the conversation in another shape.
    """

    note: str
    concerns: Callable[[Messages], bool]
    probe: Probe
    change: Callable[[Messages], Messages]


def user(text: str) -> Message:
    """A message of a user."""
    return {"role": "user", "content": text}


def assistant(text: str | None, *calls: Message, **more: Any) -> Message:
    """A message of the assistant."""
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {}), **more}


def call(name: str, arguments: Any, call_id: str = "qzcall001") -> Message:
    """Returns a call. Its id has the form that the strictest templates ask for."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(text: str, call_id: str = "qzcall001", name: str = "qztool") -> Message:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": text}


def joined(first: Message, *others: Message) -> Message:
    """Returns one message with the texts of all messages and the first one's role."""
    texts = [text for message in (first, *others) if (text := message.get("content"))]
    calls = [one for message in (first, *others) for one in message.get("tool_calls", ())]
    more = {name: value for message in reversed((first, *others)) for name, value in message.items()}
    made = {**more, "role": first["role"], "content": GAP.join(texts)}
    return {**made, "tool_calls": calls} if calls else made


def is_turn(message: Message, role: str) -> bool:
    """Returns True for a message of this role that makes no calls."""
    return bool(message["role"] == role and not message.get("tool_calls"))


def pairs(messages: Sequence[Message]) -> list[tuple[Message, Message]]:
    """Returns each message together with the next one."""
    return list(zip(messages, messages[1:], strict=False))
