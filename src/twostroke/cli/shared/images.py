"""Reads image files that a person names, either as an option, by a command of a conversation, or in the words of a
message."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

from twostroke.types.errors import InvalidRequest
from twostroke.types.reading.user_path import user_path

MOST_BYTES = 20 << 20
REMOTE = ("http://", "https://", "data:")
ENDINGS = ("png", "jpg", "jpeg", "webp", "gif", "bmp")
_BEGINS = r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\]"
_PATH = re.compile(
    rf"""(?<!\S)(?:"({_BEGINS}[^"]+?)"|'({_BEGINS}[^']+?)'"""
    rf"""|({_BEGINS}(?:\\\ |\S)*?\.(?:{"|".join(ENDINGS)}))(?!\S))""",
    re.IGNORECASE,
)
"""The pattern of a path. A path begins with /, ./, ../, ~/ or a drive. A path with a space stands in quotes, or has a
backslash before the space."""


def image_part(name: str) -> dict[str, Any]:
    """Returns the part of a message for a file or a URL. The file is read now. Raises InvalidRequest where it cannot be
    read."""
    if name.lower().startswith(REMOTE):
        return {"type": "image_url", "image_url": {"url": name}}
    try:
        with user_path(name).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidRequest(f"The image file {name} cannot be read: {why}.") from None
    if len(data) > MOST_BYTES:
        raise InvalidRequest(f"The image file {name} has more than {MOST_BYTES:,} bytes.", fix="Make it smaller.")
    return {"type": "image", "image": data}


def paths_in(text: str) -> tuple[str, list[str]]:
    """Returns the text without the image files that it names, and their paths in order. Words that name no file stay in
    the text."""
    paths: list[str] = []

    def taken(found: re.Match[str]) -> str:
        path = found[1] or found[2] or found[3].replace("\\ ", " ")
        if not (path.lower().endswith(tuple(f".{ending}" for ending in ENDINGS)) and _is_file(path)):
            return found[0]
        paths.append(path)
        return ""

    left = _PATH.sub(taken, text)
    return (re.sub(" {2,}", " ", left).strip() if paths else text), paths


def message_of(text: str, images: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a user's message, with its images before its text."""
    if not images:
        return {"role": "user", "content": text}
    words = [{"type": "text", "text": text}] if text else []
    return {"role": "user", "content": [*images, *words]}


def as_sent(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a message in the form that a server takes, with files in base64."""
    content = message["content"]
    if isinstance(content, str):
        return dict(message)
    return {**message, "content": [_sent_part(part) for part in content]}


def _sent_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    if part.get("type") != "image":
        return part
    url = f"data:image/*;base64,{base64.b64encode(part['image']).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def _is_file(path: str) -> bool:
    try:
        return user_path(path).is_file()
    except (OSError, RuntimeError, ValueError):
        return False
