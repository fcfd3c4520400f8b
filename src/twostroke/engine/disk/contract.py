"""The interface between the decisions about cached pages on a disk and the disk itself, which may be real or simulated.

A part is one page of K and V of one cache group, or the state after a page. Its place is a hash of the salt, all tokens
up to the page's end, and the group: equal beginnings of prompts have equal places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from twostroke.engine.disk.index import DiskPart

QUEUED_BYTES = 64 << 20
"""The most bytes that may wait to be written."""

NewParts = Sequence[tuple[bytes, bytes]]
"""The parts to write, each as (place, bytes). A part is a page of K and V or a state; its place is a hash of the tokens
up to the page's end."""


def size_of(parts: NewParts) -> int:
    """Returns the number of bytes of all these parts."""
    return sum(len(data) for _, data in parts)


class DiskCounts(Struct):
    """Counts of what a disk store has done so far. refused: the prompts that were not read, because this would have
    saved too little time or there was no room. lost: the parts (pages of K and V, states) that were to be written and
    were not, because of an error or a lack of room."""

    written_bytes: int = 0
    read_bytes: int = 0
    read_tokens: int = 0
    damaged: int = 0
    refused: int = 0
    lost: int = 0
    removed_files: int = 0


class DiskWriting(Struct, frozen=True):
    """The parts (pages of K and V, states) to write into one file. stay_s: the seconds for which the file is protected:
    when room is needed, unprotected files are removed first. files: the names of existing files that get the same
    protection."""

    parts: NewParts
    stay_s: float = 0.0
    files: tuple[str, ...] = ()


class DiskReading(Struct, frozen=True):
    """The parts (pages of K and V, states) to read together. key: a number that the caller chooses. parts: for each
    part, the location of its bytes in a file, and its place: the hash of the tokens up to its end. The digest of the
    bytes is keyed with this hash, so bytes of other tokens are rejected."""

    key: int
    parts: tuple[tuple[DiskPart, bytes], ...]


class DiskAnswer(Struct, frozen=True):
    """The answer to one DiskReading, with the same `key`. parts: the bytes of the pages and states that were asked for,
    in their order, up to the first that is missing or damaged."""

    key: int
    parts: tuple[bytes, ...]
    seconds: float


class PartStore(Protocol):
    """The index of the parts (pages of K and V, states) in the files of a disk. readable, writable: whether parts can
    be read, and whether new ones can be written."""

    counts: DiskCounts
    readable: bool
    writable: bool

    def part_id(self, place: bytes) -> bytes:
        """Returns the id under which a page or state is stored. place: a hash of the prompt's tokens up to the end
        of the page, or up to the position of the state."""

    def find(self, part_id: bytes) -> DiskPart | None:
        """Returns the file in which the page or state with this id is, and where in the file; None when it is not
        stored."""


class PartReader(Protocol):
    """Reads parts (pages of K and V, states) from a disk while the engine computes."""

    def ask(self, reading: DiskReading) -> None:
        """Begin to read these parts. Each call gives one answer, which `take` returns."""

    def owes(self, key: int) -> bool:
        """Returns True when a reading with this key has no answer yet."""

    def take(self, seconds: float = 0.0) -> list[DiskAnswer]:
        """Returns the answers that have come. When there are none, wait for one, for at most `seconds`."""

    def close(self) -> None:
        """End the reader's thread."""


class PartWriter(Protocol):
    """Writes parts (pages of K and V, states) to a disk while the engine computes."""

    @property
    def has_room(self) -> bool:
        """True when the queue of parts to write has room for more."""

    @property
    def idle(self) -> bool:
        """True when everything that was given to the writer is written."""

    def give(self, writing: DiskWriting) -> None:
        """Queue parts to be written later."""

    def wait_room(self, seconds: float) -> bool:
        """Wait until the queue has room, for at most `seconds`. Returns True when it has."""

    def flush(self, seconds: float) -> bool:
        """Wait until everything is written, for at most `seconds`. Returns True when it is."""

    def close(self) -> None:
        """End the writer's thread."""


class DiskSides(Struct, frozen=True):
    """The three interfaces of a disk: `store` finds the pages and states on it, `reader` reads them, `writer` writes
    them."""

    store: PartStore
    reader: PartReader
    writer: PartWriter
