"""Finds an assistant's thought in an earlier turn, under any of the names that clients use for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twostroke.text.history.parts import THOUGHT_KEYS

NAMES = ("reasoning_content", "reasoning", "thinking")
"""The names of a thought in messages; each template reads one of them. A message that has a thought gets all of them.
"""


def with_thought(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the message with its thought under each of NAMES, and under no other name; a message without a thought
    has none of NAMES."""
    made = {name: value for name, value in message.items() if name not in (*NAMES, "reasoning_details")}
    found = "\n".join(_thoughts(message))
    return {**made, **dict.fromkeys(NAMES, found)} if found else made


def _thoughts(message: Mapping[str, Any]) -> Iterator[str]:
    for name in NAMES:
        if (text := _text(message.get(name))) is not None:
            yield text
            return
    details = [part for part in _list(message.get("reasoning_details")) if isinstance(part, Mapping)]
    texts = [text for part in details if (text := _text(part.get("text") or part.get("summary"))) is not None]
    for part in _list(message.get("content")):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if isinstance(kind, str) and (text := _text(part.get(THOUGHT_KEYS.get(kind, "")))) is not None:
            texts.append(text)
    yield from texts


def _text(value: Any) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("content") or value.get("text")
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        value = "\n".join(text for item in value if (text := _text(item)) is not None)
    return value if isinstance(value, str) and value.strip() else None


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else ()
