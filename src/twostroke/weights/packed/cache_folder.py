"""The files of packed weights in a cache folder: lists them, checks whether they are whole, and removes them."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from twostroke.types.errors import ConfigError
from twostroke.types.reading.unreadable import why_unreadable
from twostroke.weights.packed.file import header_of, open_file
from twostroke.weights.packed.header import StaleFile
from twostroke.weights.packed.in_use import in_use

SUFFIX = ".pack"

Progress = Callable[[int, int, str], None]


class CacheState(enum.StrEnum):
    """The state of a file of packed weights. unchecked: the header is right, and the blocks were not compared with
    their checksums. unusable: the file is damaged or belongs to another version."""

    UNCHECKED = "unchecked"
    WHOLE = "whole"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A file of packed weights in the cache folder. used_s: the time when the file was last mapped or written. origin:
    the folder or file of the model from which the weights came. origin and formats are empty where the header cannot be
    read. why: the reason why an unusable file is unusable."""

    path: Path
    num_bytes: int
    used_s: float
    origin: str = ""
    formats: str = ""
    state: CacheState = CacheState.UNCHECKED
    why: str = ""

    @property
    def name(self) -> str:
        """The name of the file in commands: the file's name without its ending."""
        return self.path.stem

    @property
    def in_use(self) -> bool | None:
        """Whether a process maps the file now; None where that cannot be known."""
        return in_use(self.path)


def cached_files(folder: Path) -> list[CachedFile]:
    """Returns all files of a folder, sorted by name; none where there is no folder. Headers are read, blocks are not
    compared. Raises OSError for a folder that may not be read."""
    try:
        names = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [_described(path) for path in names]


def listed_files(folder: Path) -> list[CachedFile]:
    """Returns all files of a folder, as `cached_files` does, for commands. Raises ConfigError, which tells the user
    what to do, for a folder that may not be read."""
    try:
        return cached_files(folder)
    except OSError as error:
        raise ConfigError(
            f"The packed weights in {folder} cannot be read.",
            why=why_unreadable(error),
            fix="Check who owns the folder, or name another one by --cache.",
        ) from None


def chosen_files(folder: Path, names: Sequence[str]) -> list[CachedFile]:
    """Returns the files whose names begin with one of `names`, or whose origin is one of them; all files where `names`
    is empty.

    Raises ConfigError for a name that fits no file.
    """
    found = listed_files(folder)
    if not names:
        return found
    chosen: dict[str, CachedFile] = {}
    for name in names:
        fitting = [file for file in found if name and (file.name.startswith(name) or file.origin == name)]
        if not fitting:
            raise ConfigError(
                f"The cache holds no file {name[:80]!r}.",
                why=f"{len(found)} files lie in {folder}.",
                fix="See `twostroke cache list`; the beginning of a name is enough.",
            )
        chosen |= {file.name: file for file in fitting}
    return [chosen[name] for name in sorted(chosen)]


def verified(files: Sequence[CachedFile], progress: Progress = lambda done, total, name: None) -> list[CachedFile]:
    """Returns the files after every block was compared with its checksum. progress: called with the bytes done, the
    bytes in all, and the name."""
    total_bytes, before, found = sum(file.num_bytes for file in files), 0, []
    for file in files:
        found.append(_verified(file, functools.partial(_tell, progress, before, total_bytes, file.name)))
        before += file.num_bytes
    return found


def remove(file: CachedFile) -> None:
    """Deletes the file; engines that have it mapped go on. Raises ConfigError where deleting is not allowed."""
    try:
        file.path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{file.path} cannot be deleted.", why=f"{error.strerror}.") from None


def _verified(file: CachedFile, on_bytes: Callable[[int], None]) -> CachedFile:
    try:
        open_file(file.path).check_all(on_bytes=on_bytes)
    except StaleFile as reason:
        return _described(file.path, CacheState.UNUSABLE, str(reason))
    return _described(file.path, CacheState.WHOLE)


def _tell(progress: Progress, before: int, total_bytes: int, name: str, num_bytes: int) -> None:
    progress(before + num_bytes, total_bytes, name)


def _described(path: Path, state: CacheState = CacheState.UNCHECKED, why: str = "") -> CachedFile:
    try:
        status = path.stat()
    except OSError as error:
        return CachedFile(path, 0, 0.0, state=CacheState.UNUSABLE, why=why or f"it cannot be read: {error.strerror}")
    plain = CachedFile(path, status.st_size, status.st_mtime)
    try:
        header = header_of(path)
    except StaleFile as reason:
        return CachedFile(path, plain.num_bytes, plain.used_s, state=CacheState.UNUSABLE, why=why or str(reason))
    formats = header.key.get("formats", "")
    return CachedFile(path, plain.num_bytes, plain.used_s, header.origin, formats, state, why)
