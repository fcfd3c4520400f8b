"""Turns the content of a message into one text: the content may be text, parts of many types, or neither.

In a user's new message (`strict`), a part that is not text is refused, because the user asks about it now. In earlier
messages, a refusal would end the conversation: a line in place of the part tells the model that something was there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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

    strict: a part that is not text raises InvalidRequest, which names `where`; without it, a line of text replaces the
    part.
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
        read = _DOCUMENTS.get(kind or "")
        found = read(part) if read is not None else part.get(_TEXT_KEYS.get(kind, ""))
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
    """Returns the text of a document that is sent as text or as parts of text, with its title in front; None for any
    other part."""
    source = part.get("source")
    if not isinstance(source, Mapping):
        return None
    kind = source.get("type")
    text = source.get("data") if kind == "text" else _joined(source.get("content")) if kind == "content" else None
    return _with_heads(text, part.get("title"))


def _search_text(part: Mapping[str, Any]) -> str | None:
    """Returns the text of a search result, with its title and its source in front."""
    return _with_heads(_joined(part.get("content")), part.get("title"), part.get("source"))


_DOCUMENTS: Mapping[str, Callable[[Mapping[str, Any]], str | None]] = {
    "document": _document_text,
    "search_result": _search_text,
}


def _joined(content: Any) -> str | None:
    """Returns the content of a document as one text: a text itself, or parts of text joined by line ends. Returns None
    where there is any other part."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else [None]
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts]
    return LINE_END.join(map(str, texts)) if all(isinstance(text, str) for text in texts) else None


def _with_heads(text: Any, *heads: Any) -> str | None:
    lines = [head for head in heads if isinstance(head, str) and head]
    return LINE_END.join([*lines, text]) if isinstance(text, str) else None
