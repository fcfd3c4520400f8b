"""Decoders of JSON and MessagePack: the one place where msgspec builds the types that bytes are read as.

    _chunks = json_decoder(Chunk)  # where the module is imported, not where bytes are read
    chunk = _chunks.decode(data)

msgspec builds a type with the first decoder that asks for it, and keeps what it has built on the class. Two threads
that build one type at the same time can end the process by SIGSEGV. So each type is built here by one thread at a time,
and before there is anything to read. Any number of threads may use a decoder. A test in tests/laws forbids decoders
that are made elsewhere.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from msgspec import json, msgpack

_Kind = TypeVar("_Kind")
_building = threading.RLock()  # reentrant: a module that is imported while a type is built may build its own type


def json_decoder(kind: type[_Kind]) -> json.Decoder[_Kind]:
    """Returns a decoder of JSON. msgspec builds the type `kind` in this call."""
    with _building:
        return msgspec.json.Decoder(kind)


def msgpack_decoder(kind: Any) -> msgpack.Decoder[Any]:
    """Returns a decoder of MessagePack. msgspec builds the type in this call. kind: a type, or a union of types."""
    with _building:
        return msgspec.msgpack.Decoder(kind)
