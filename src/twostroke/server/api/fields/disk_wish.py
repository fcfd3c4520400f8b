"""What a request asks for the pages of its prompt: how long they are kept on a disk, and in which slot of llama.cpp's
API they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
from starlette.types import Scope

from twostroke.server.calls import Call
from twostroke.server.gate.decode import decoded
from twostroke.server.gate.security import client_of
from twostroke.types.errors import InvalidRequest
from twostroke.types.reading.decoders import json_decoder

FIELD = "prompt_cache_retention"
IN_MEMORY = "in_memory"
SLOT, MAX_SLOT = b'"id_slot"', 9999
KEEP_HEADER, KEEP_VALUE = b"x-twostroke-keep", b"memory"
INNER = "twostroke.inner"
"""The key in an ASGI scope that marks a request of the server to itself."""
NEVER_S, HOUR_S, DAY_S = -1.0, 3600.0, 86_400.0
_RETENTIONS = {None: 0.0, IN_MEMORY: NEVER_S, "in-memory": NEVER_S, "24h": DAY_S}
_TTLS = {None: 0.0, "5m": 0.0, "1h": HOUR_S}


class Sender(msgspec.Struct, frozen=True):
    """The sender of a request. client: the label of its key. memory_only: True when a header forbids the disk. inner:
    True when the server itself made the request."""

    client: str
    memory_only: bool = False
    inner: bool = False


class _Asked(msgspec.Struct):
    prompt_cache_retention: Any = None
    store: Any = None
    id_slot: Any = None


_asked = json_decoder(_Asked)


def sender_of(scope: Scope) -> Sender:
    """Returns who sent a request: the label of its API key, whether it forbids the disk, and whether the server itself
    made it. The key must have been checked."""
    return Sender(client_of(scope), _forbids(scope["headers"]), INNER in scope)


def _forbids(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    for name, value in headers:
        words = {word.strip() for word in value.lower().split(b",")}
        if (name == KEEP_HEADER and KEEP_VALUE in words) or (name == b"cache-control" and b"no-store" in words):
            return True
    return False


def with_disk_wish(call: Call, body: bytes, sender: Sender) -> Call:
    """Returns the request for the engine with its slot of llama.cpp's API and the time on disk of its prompts' pages.
    The body and the headers set both. Raises InvalidRequest."""
    disk_s = NEVER_S if sender.memory_only else 0.0
    if FIELD.encode() in body or b'"store"' in body or SLOT in body:  # most bodies have none and are not parsed again
        asked = decoded(body, _asked)
        if type(asked.id_slot) is int and 0 < asked.id_slot <= MAX_SLOT:
            call = replace(call, slot=asked.id_slot)
        kept = asked.prompt_cache_retention
        if kept is not None and not (isinstance(kept, str) and kept in _RETENTIONS):
            raise InvalidRequest(f"{FIELD} must be {IN_MEMORY!r} or '24h'.", param=FIELD)
        forbidden = disk_s < 0 or (asked.store is False and not sender.inner)
        disk_s = NEVER_S if forbidden else _RETENTIONS[kept]
    return call if not disk_s else with_disk_s(call, disk_s)


def with_disk_s(call: Call, disk_s: float) -> Call:
    """Returns the request for the engine with another time on disk for all its prompts. disk_s: the seconds for which
    their pages are kept there in addition to the usual time; NEVER_S keeps them off the disk."""
    return replace(call, prompts=tuple(replace(prompt, disk_s=disk_s) for prompt in call.prompts))


def longest_ttl_s(marks: Iterable[Mapping[str, Any]]) -> float:
    """Returns the longest time, in seconds, that marks of Anthropic's cache_control ask to keep a prompt. Raises
    InvalidRequest for another ttl."""
    found = [mark.get("ttl") for mark in marks]
    for ttl in found:
        if ttl is not None and not (isinstance(ttl, str) and ttl in _TTLS):
            raise InvalidRequest("The ttl of cache_control must be '5m' or '1h'.", param="cache_control")
    return max((_TTLS[ttl] for ttl in found), default=0.0)
