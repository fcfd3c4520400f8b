"""Knows in which files the cached pages and states of prompts are, and which files to remove from a folder that is too
large. This module touches no file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct


class DiskPart(Struct, frozen=True):
    """Where the bytes of a page, or of a state, are: num_bytes bytes in the file of this name, from `offset` on."""

    file: str
    offset: int
    num_bytes: int
    digest: bytes


class FoundFile(Struct, frozen=True):
    """A file of the folder. name: its path below the folder. used_ns: the time of its last use, in nanoseconds."""

    name: str
    num_bytes: int
    used_ns: int


class DiskIndex:
    """The locations of all pages and states in the files of a folder, by their ids. Only one thread at a time may use
    it."""

    def __init__(self) -> None:
        self._parts: dict[bytes, DiskPart] = {}
        self._files: dict[str, tuple[bytes, ...]] = {}

    def __contains__(self, part_id: bytes) -> bool:
        return part_id in self._parts

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def files(self) -> Sequence[str]:
        """The names of the files in the index."""
        return tuple(self._files)

    def knows(self, file: str) -> bool:
        """Returns True when this file is in the index."""
        return file in self._files

    def find(self, part_id: bytes) -> DiskPart | None:
        """Returns where the part with this id is; None when it is not in the index."""
        return self._parts.get(part_id)

    def add(self, file: str, parts: Sequence[tuple[bytes, DiskPart]]) -> None:
        """Add a file that is in the folder. When two files have a part with the same id, the file that was added first
        counts."""
        self.forget(file)
        self._files[file] = tuple(part_id for part_id, _ in parts)
        for part_id, part in parts:
            self._parts.setdefault(part_id, part)

    def forget(self, file: str) -> None:
        """Remove a file that is gone or cannot be trusted."""
        for part_id in self._files.pop(file, ()):
            found = self._parts.get(part_id)
            if found is not None and found.file == file:
                del self._parts[part_id]


def leaving(files: Iterable[FoundFile], limit_bytes: int, new_bytes: int) -> list[FoundFile]:
    """Returns the files to remove before new_bytes are added, so that all fit in limit_bytes. The least recently used
    are removed first."""
    known = sorted(files, key=lambda file: (file.used_ns, file.name))
    over = sum(file.num_bytes for file in known) + new_bytes - limit_bytes
    gone: list[FoundFile] = []
    for file in known:
        if over <= 0:
            break
        gone.append(file)
        over -= file.num_bytes
    return gone
