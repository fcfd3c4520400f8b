"""The file operations that cached pages on a disk need. This module knows nothing of the files' content."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from twostroke.engine.disk.index import FoundFile
from twostroke.system import here

OWN_FOLDER, OWN_FILE = 0o700, 0o600
KV_FOLDER = "kv"
"""The name of the folder of pages within a cache folder."""
SECRET = "secret"
"""The name of the file in the folder of pages that holds the secret key from which all ids are made."""
PARTIAL = ".part"
ABANDONED_S, MOST_STAY_S = 600.0, 86_400.0
"""A partial file to which nothing was written for ABANDONED_S seconds is removed, because its process was killed.
MOST_STAY_S: the longest time, in seconds, for which a request may protect its pages' files from removal."""

_NUMBERS = itertools.count(1)


class DiskFiles:
    """The files below one folder. All methods raise OSError. Names are paths below the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make_folder(self, name: str) -> None:
        """Make a folder that only this user can read. Raises PermissionError for a link and for a folder of another
        user."""
        path = self.folder / name
        path.mkdir(mode=OWN_FOLDER, parents=True, exist_ok=True)
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise PermissionError("it is a link, and not a folder")
        if found.st_mode & 0o077 and here.user_number() == found.st_uid:
            path.chmod(OWN_FOLDER)
            found = os.lstat(path)
        if not here.is_own(found):
            raise PermissionError("another user owns it")

    def list(self) -> list[FoundFile]:
        """Returns all files, partial ones too."""
        return list(_found(self.folder, ""))

    def remove_abandoned(self) -> None:
        """Remove partial files of processes that were killed."""
        now_ns = time.time_ns()
        for file in self.list():
            if file.name.endswith(PARTIAL) and now_ns - file.used_ns > ABANDONED_S * 1e9:
                self.remove(file.name)

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write a whole file under another name, rename it, and return its number of bytes. No part of it is left when
        the writing fails."""
        partial = self.folder / f"{name}.{os.getpid()}-{next(_NUMBERS)}{PARTIAL}"
        written = 0
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | here.file_flags(follow=False)
            descriptor = os.open(partial, flags, OWN_FILE)
            with open(descriptor, "wb", buffering=0) as file:
                for piece in pieces:
                    written += _written(file.fileno(), piece)
            os.replace(partial, self.folder / name)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise
        return written

    def read(self, name: str, offset: int, num_bytes: int) -> bytes:
        """Returns num_bytes bytes of a file from `offset` on; fewer at the file's end."""
        descriptor = os.open(self.folder / name, os.O_RDONLY | here.file_flags(follow=False))
        try:
            return here.read_at(descriptor, num_bytes, offset)
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> None:
        """Remove a file. A file that is gone already is no error."""
        (self.folder / name).unlink(missing_ok=True)

    def touch(self, name: str, stay_s: float = 0.0) -> None:
        """Sets the file's time of use to now, or to `stay_s` seconds from now. A file whose time is later already keeps
        it. A time that is too far in the future comes from a wrong clock, and is replaced."""
        now_ns = time.time_ns()
        before_ns = os.stat(self.folder / name, follow_symlinks=False).st_mtime_ns
        known_ns = before_ns if before_ns <= now_ns + int(MOST_STAY_S * 1e9) else 0
        later_ns = max(now_ns + int(stay_s * 1e9), known_ns)
        os.utime(self.folder / name, ns=(now_ns, later_ns), follow_symlinks=False)


def _found(folder: Path, below: str) -> Iterator[FoundFile]:
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # another process has removed the file
                if entry.is_dir(follow_symlinks=False):
                    yield from _found(folder / entry.name, f"{below}{entry.name}/")
                elif entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    yield FoundFile(f"{below}{entry.name}", status.st_size, status.st_mtime_ns)


def _written(descriptor: int, piece: bytes) -> int:
    left = memoryview(piece)
    while left:
        left = left[os.write(descriptor, left) :]
    return len(piece)
