"""The bytes of one file of pages: a head that names and guards its parts, then the parts one after the other.

    magic, format, identity of the model and the arithmetic that computed the parts, number of parts
    for each part: its id, the digest of its bytes, the number of its bytes
    a digest of all of the above

A file is written whole under another name and renamed, and never changed. Each part has a digest of its own, computed
as for a page that is sent to another replica. The digest is keyed with a hash of all tokens up to the end of the page,
so the bytes of a page with other tokens never match.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from msgspec import Struct

from twostroke.engine.disk.index import DiskPart

MAGIC = b"2STROKEKV\0"
FORMAT = 1
ID_BYTES = 16
MOST_PARTS = 4096
_FIRST = struct.Struct("<10sH16sI")
_PART = struct.Struct("<16s16sQ")


class UnusableExtent(Exception):
    """Raised for a file of pages that cannot be used: it is truncated or damaged, or has another format, or another
    model or arithmetic computed its pages."""


class NewPart(Struct, frozen=True):
    """A part (a page of K and V, or a state) for a file that is to be written: its id, the digest of its bytes, and the
    bytes."""

    part_id: bytes
    digest: bytes
    data: bytes


def head_of(identity: bytes, parts: Sequence[NewPart]) -> bytes:
    """Returns the head of a file, which comes before the parts."""
    head = _FIRST.pack(MAGIC, FORMAT, identity, len(parts))
    head += b"".join(_PART.pack(part.part_id, part.digest, len(part.data)) for part in parts)
    return head + _guard(head)


def head_bytes(first: bytes) -> int:
    """Returns the number of bytes of a file's head. first: the first `FIRST_BYTES` bytes of the head. Raises
    UnusableExtent."""
    if len(first) < FIRST_BYTES:
        raise UnusableExtent("it is truncated")
    magic, version, _, count = _FIRST.unpack_from(first)
    if magic != MAGIC or version != FORMAT or not 0 < count <= MOST_PARTS:
        raise UnusableExtent("it has another format")
    return FIRST_BYTES + int(count) * _PART.size + ID_BYTES


def parts_of(name: str, head: bytes, identity: bytes, file_bytes: int) -> list[tuple[bytes, DiskPart]]:
    """Returns the locations of the pages and states in a file of file_bytes bytes, each with its id. Raises
    UnusableExtent."""
    size = head_bytes(head)
    if len(head) < size or file_bytes < size:
        raise UnusableExtent("it is truncated")
    body, guard = head[: size - ID_BYTES], head[size - ID_BYTES : size]
    if _guard(body) != guard:
        raise UnusableExtent("its head is damaged")
    if _FIRST.unpack_from(head)[2] != identity:
        raise UnusableExtent("another model or another arithmetic computed it")
    found, at = [], size
    for part_id, digest, num_bytes in _PART.iter_unpack(body[FIRST_BYTES:]):
        found.append((part_id, DiskPart(name, at, num_bytes, digest)))
        at += num_bytes
    if at != file_bytes:
        raise UnusableExtent("it is truncated")
    return found


def name_of(parts: Sequence[NewPart]) -> str:
    """Returns the name of a file with these parts. It is equal for equal parts, and reveals nothing of their content.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part.part_id)
    return f"{digest.hexdigest()}.kv"


def _guard(head: bytes) -> bytes:
    return hashlib.blake2b(head, digest_size=ID_BYTES).digest()


FIRST_BYTES = _FIRST.size
