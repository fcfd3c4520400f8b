"""What the decisions about pages on a disk ask of the disk itself, which may be a real one or a simulated one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from twostroke.engine.disk.index import DiskPart

QUEUED_BYTES = 64 << 20
"""The most bytes that wait to be written."""

NewParts = Sequence[tuple[bytes, bytes]]
"""(place, bytes) of each part."""


def size_of(parts: NewParts) -> int:
    """The bytes of all these parts."""
    return sum(len(data) for _, data in parts)


class DiskCounts(Struct):
    """What has happened so far. refused: readings that would not have been worth it. lost: parts that were not
    written."""

    written_bytes: int = 0
    read_bytes: int = 0
    read_tokens: int = 0
    damaged: int = 0
    refused: int = 0
    lost: int = 0
    removed_files: int = 0


class DiskWriting(Struct, frozen=True):
    """What to write in one file. stay_s: how long it leaves after all others. files: those that stay as long."""

    parts: NewParts
    stay_s: float = 0.0
    files: tuple[str, ...] = ()


class DiskReading(Struct, frozen=True):
    """What to read in one go. key: the asker's number. parts: where each part is, and its place."""

    key: int
    parts: tuple[tuple[DiskPart, bytes], ...]


class DiskAnswer(Struct, frozen=True):
    """What came. parts: the bytes of the first parts, up to the first that is missing or damaged."""

    key: int
    parts: tuple[bytes, ...]
    seconds: float


class PartStore(Protocol):
    """What is kept, and whether it can be used."""

    counts: DiskCounts
    readable: bool
    writable: bool

    def part_id(self, place: bytes) -> bytes:
        """The id of what is kept for this place."""

    def find(self, part_id: bytes) -> DiskPart | None:
        """Where the part is, if it is there."""


class PartReader(Protocol):
    """Reads while the engine computes."""

    def ask(self, reading: DiskReading) -> None:
        """Read these parts; there is one answer."""

    def owes(self, key: int) -> bool:
        """Has a reading of this key no answer yet?"""

    def take(self, seconds: float = 0.0) -> list[DiskAnswer]:
        """The answers that have come. Where there are none, wait for one, no longer than this."""

    def close(self) -> None:
        """Read no more."""


class PartWriter(Protocol):
    """Writes while the engine computes."""

    @property
    def has_room(self) -> bool:
        """May more be given to it?"""

    @property
    def idle(self) -> bool:
        """Is all written that was given to it?"""

    def give(self, writing: DiskWriting) -> None:
        """Let this be written later."""

    def wait_room(self, seconds: float) -> bool:
        """Wait until there is room, no longer than this; whether there is."""

    def flush(self, seconds: float) -> bool:
        """Wait until all is written, no longer than this; whether it is."""

    def close(self) -> None:
        """Write no more."""


class DiskSides(Struct, frozen=True):
    """A disk as its user sees it."""

    store: PartStore
    reader: PartReader
    writer: PartWriter
