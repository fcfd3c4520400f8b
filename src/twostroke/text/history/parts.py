"""Turns the content of a message into one text: the content may be text, parts of many types, or neither.

Strict: a part that is not text is refused, because a user asks for it now. Otherwise the part stands in the history,
where refusing it would end the conversation. A line in its place tells the model that something was there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twostroke.types.errors import InvalidRequest
from twostroke.types.images import PlacedPart, is_image
from twostroke.types.notes import Notes, named

_TEXT_KEYS = {
    None: "text",
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
"""The key of the text in parts of these types."""
THOUGHT_KEYS = {
    "thinking": "thinking",
    "reasoning": "reasoning",
    "reasoning_text": "text",
    "redacted_thinking": "",
    "redacted_reasoning": "",
}
"""The key of the thought in parts of these types; an empty key where the thought cannot be read."""


LINE_END = "\n"


def text_of(content: Any, where: str, notes: Notes, *, strict: bool, joint: str = LINE_END) -> str | None:
    """Returns the content as one text: a text unchanged, the texts of a list of parts joined, None for None. joint: the
    text between two parts.

    Raises InvalidRequest that names `where`, if `strict` is set.
    """
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, Sequence) and not isinstance(content, bytes):
        made = (_part(part, f"{where}[{place}]", notes, strict) for place, part in enumerate(content))
        texts = [text for text in made if text is not None]
        return joint.join(texts)
    if strict:
        raise InvalidRequest("The content of the last message is neither text nor a list of parts.", param=where)
    notes.add("content that is neither text nor a list of parts was written as JSON")
    return as_json(content)


def as_json(value: Any) -> str:
    """Returns any value as JSON text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def left_out(kind: Any) -> str:
    """Returns the line that replaces a part of this type."""
    return f"[A part of the type {named(kind)} was left out: this model reads text only.]"


def _part(part: Any, where: str, notes: Notes, strict: bool) -> str | None:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if isinstance(part, Mapping) and (kind is None or isinstance(kind, str)):
        if kind in THOUGHT_KEYS:
            return None
        found = _document_text(part) if kind == "document" else part.get(_TEXT_KEYS.get(kind, ""))
        if isinstance(found, str):
            return found
    if strict and is_image(part):
        raise InvalidRequest(
            f"This model reads no images, and the last message holds a part of type {named(kind)!r}.",
            param=part.where if isinstance(part, PlacedPart) else where,
            why="Its files hold no encoder of images, or the server was started without it.",
            fix="Send text, or ask a model that reads images: `twostroke config MODEL` says why under images.",
        )
    if strict:
        raise InvalidRequest(
            f"The last message holds a part of type {named(kind)!r}.",
            param=where,
            fix="This model reads text parts only.",
        )
    notes.add(f"a part of the type {named(kind)} in an earlier message was left out")
    return left_out(kind)


def _document_text(part: Mapping[str, Any]) -> str | None:
    """Returns the text of a document that is sent as text, with its title in front; None for any other part."""
    source = part.get("source")
    if not isinstance(source, Mapping) or source.get("type") != "text" or not isinstance(source.get("data"), str):
        return None
    title = part.get("title")
    return f"{title}\n{source['data']}" if isinstance(title, str) and title else str(source["data"])
