"""Anthropic's cache_control: marks up to which a prompt should be cached. This server caches every prompt. A mark only
changes the usage that is reported, and the time for which the prompt's pages stay on a disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twostroke.types.errors import InvalidRequest

FIELD = "cache_control"
MAX_MARKS = 4
KINDS = ("ephemeral",)


def check_marks(groups: Iterable[Any]) -> Sequence[Mapping[str, Any]]:
    """Returns the cache_control objects in these lists of content blocks. Raises InvalidRequest for more than MAX_MARKS
    of them, and for one whose type is not "ephemeral"."""
    marks = [block[FIELD] for blocks in groups for block in _blocks(blocks) if block.get(FIELD) is not None]
    if len(marks) > MAX_MARKS:
        raise InvalidRequest(
            f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {len(marks)}.",
            param=FIELD,
        )
    for mark in marks:
        if not isinstance(mark, Mapping) or mark.get("type") not in KINDS:
            raise InvalidRequest(f"cache_control must have the type {KINDS[0]!r}.", param=FIELD)
    return marks


def marks_all(content: Any) -> bool:
    """Returns True when the last block of the last message has a mark, so that the whole prompt should be cached."""
    blocks = _blocks(content)
    return bool(blocks) and blocks[-1].get(FIELD) is not None


def _blocks(content: Any) -> list[Mapping[str, Any]]:
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
