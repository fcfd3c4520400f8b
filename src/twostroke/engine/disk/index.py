"""Which parts of prompts are in which files, and which files leave a folder that is too large. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct


class DiskPart(Struct, frozen=True):
    """Where the bytes of a page, or of a state, are: in the file of this name, from `offset` on."""

    file: str
    offset: int
    num_bytes: int
    digest: bytes


class FoundFile(Struct, frozen=True):
    """A file of the folder. name: its path below the folder. used_ns: when it was used last."""

    name: str
    num_bytes: int
    used_ns: int


class DiskIndex:
    """Parts by their ids. Not for several threads at once."""

    def __init__(self) -> None:
        self._parts: dict[bytes, DiskPart] = {}
        self._files: dict[str, tuple[bytes, ...]] = {}

    def __contains__(self, part_id: bytes) -> bool:
        return part_id in self._parts

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def files(self) -> Sequence[str]:
        """The names of the files that it knows."""
        return tuple(self._files)

    def knows(self, file: str) -> bool:
        """Is this file in it?"""
        return file in self._files

    def find(self, part_id: bytes) -> DiskPart | None:
        """Where the part with this id is."""
        return self._parts.get(part_id)

    def add(self, file: str, parts: Sequence[tuple[bytes, DiskPart]]) -> None:
        """A file is in the folder. The part of a file that came earlier counts where two files have one id."""
        self.forget(file)
        self._files[file] = tuple(part_id for part_id, _ in parts)
        for part_id, part in parts:
            self._parts.setdefault(part_id, part)

    def forget(self, file: str) -> None:
        """A file is gone, or cannot be trusted."""
        for part_id in self._files.pop(file, ()):
            found = self._parts.get(part_id)
            if found is not None and found.file == file:
                del self._parts[part_id]


def leaving(files: Iterable[FoundFile], limit_bytes: int, new_bytes: int) -> list[FoundFile]:
    """The files to remove before new_bytes are added, so that all fit in limit_bytes: those used longest ago first."""
    known = sorted(files, key=lambda file: (file.used_ns, file.name))
    over = sum(file.num_bytes for file in known) + new_bytes - limit_bytes
    gone: list[FoundFile] = []
    for file in known:
        if over <= 0:
            break
        gone.append(file)
        over -= file.num_bytes
    return gone
