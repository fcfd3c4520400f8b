"""The interface between the decisions about pages on a disk and the disk itself, which may be real or simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from twostroke.engine.disk.index import DiskPart

QUEUED_BYTES = 64 << 20
"""The most bytes that may wait to be written."""

NewParts = Sequence[tuple[bytes, bytes]]
"""The new parts, each as (place, bytes)."""


def size_of(parts: NewParts) -> int:
    """Returns the number of bytes of all these parts."""
    return sum(len(data) for _, data in parts)


class DiskCounts(Struct):
    """Counts of what has happened so far. refused: the readings that were not begun, because they would have saved too
    little time or had no room. lost: the parts that were not written."""

    written_bytes: int = 0
    read_bytes: int = 0
    read_tokens: int = 0
    damaged: int = 0
    refused: int = 0
    lost: int = 0
    removed_files: int = 0


class DiskWriting(Struct, frozen=True):
    """The parts to write in one file. stay_s: for this many seconds, files that have no such time are removed before
    this one. files: names of existing files that should stay as long."""

    parts: NewParts
    stay_s: float = 0.0
    files: tuple[str, ...] = ()


class DiskReading(Struct, frozen=True):
    """The parts to read together. key: a number that the caller chooses. parts: for each part, where its bytes are, and
    its place."""

    key: int
    parts: tuple[tuple[DiskPart, bytes], ...]


class DiskAnswer(Struct, frozen=True):
    """The answer to one reading. parts: the bytes of the first parts, up to the first that is missing or damaged."""

    key: int
    parts: tuple[bytes, ...]
    seconds: float


class PartStore(Protocol):
    """The parts that are kept. readable, writable: whether they can be read, and whether new ones can be written."""

    counts: DiskCounts
    readable: bool
    writable: bool

    def part_id(self, place: bytes) -> bytes:
        """Returns the id of the part that is kept for this place."""

    def find(self, part_id: bytes) -> DiskPart | None:
        """Returns where the part is; None when it is not kept."""


class PartReader(Protocol):
    """Reads parts while the engine computes."""

    def ask(self, reading: DiskReading) -> None:
        """Read these parts. Each call gives one answer."""

    def owes(self, key: int) -> bool:
        """Returns True when a reading with this key has no answer yet."""

    def take(self, seconds: float = 0.0) -> list[DiskAnswer]:
        """Returns the answers that have come. When there are none, wait for one, for at most `seconds`."""

    def close(self) -> None:
        """End the reading."""


class PartWriter(Protocol):
    """Writes parts while the engine computes."""

    @property
    def has_room(self) -> bool:
        """True when the writer can take another writing."""

    @property
    def idle(self) -> bool:
        """True when everything that was given to the writer is written."""

    def give(self, writing: DiskWriting) -> None:
        """Queue a writing, which is written later."""

    def wait_room(self, seconds: float) -> bool:
        """Wait until there is room, for at most `seconds`. Returns True when there is room."""

    def flush(self, seconds: float) -> bool:
        """Wait until everything is written, for at most `seconds`. Returns True when it is."""

    def close(self) -> None:
        """End the writing."""


class DiskSides(Struct, frozen=True):
    """The three interfaces of a disk: its store, its reader and its writer."""

    store: PartStore
    reader: PartReader
    writer: PartWriter
