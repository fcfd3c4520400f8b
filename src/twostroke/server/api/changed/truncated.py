"""Shortens a conversation that does not fit the context: Responses' `truncation: auto`.

The earliest messages are left out, as few as possible. The system messages in front stay, and a result stays with its
call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Messages = Sequence[dict[str, Any]]
_FIRST = ("system", "developer")
MOST_ROOM = 4
"""When a conversation is shortened, at most 1 / MOST_ROOM of the context is kept free for the answer."""


def room_for(limit: int | None, context_tokens: int) -> int:
    """Returns the tokens that a shortened conversation leaves for the answer. limit: the most tokens of the answer."""
    part = max(1, context_tokens // MOST_ROOM)
    return part if limit is None else min(limit, part)


def shortened(messages: Messages, attempt: Callable[[Messages], T | None]) -> tuple[int, T] | None:
    """Returns the number of messages that were left out, and the result of the longest end of the conversation that
    fits; None when not even the last message fits. attempt: returns a result, or None when these messages do not fit.
    """
    head = next((place for place, each in enumerate(messages) if each.get("role") not in _FIRST), len(messages))
    starts = [place for place in range(head + 1, len(messages)) if messages[place].get("role") != "tool"]
    found: tuple[int, T] | None = None
    low, high = 0, len(starts)
    while low < high:  # a binary search: the later an end starts, the shorter it is
        middle = (low + high) // 2
        made = attempt([*messages[:head], *messages[starts[middle] :]])
        if made is None:
            low = middle + 1
        else:
            found, high = (starts[middle] - head, made), middle
    return found
