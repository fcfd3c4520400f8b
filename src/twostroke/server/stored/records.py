"""Records of one kind in a folder: one file for each, separate for each client, bounded in bytes and in number.

A record is written to a temporary file and then moved to its place, so that a killed process leaves a whole record or
none.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from twostroke.types.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
NO_KEY = "anyone"
"""The folder of clients without a key."""
_NEW = ".new"


class Bounds(Struct, frozen=True):
    """The limits on stored records. max_bytes, max_count: the most bytes and the most records of one client. age_s: the
    age in seconds from which records are removed. option: the command-line option that sets max_bytes."""

    max_bytes: int = 1 << 30
    max_count: int = 10_000
    age_s: float = 30 * 86400.0
    option: str = "--stored-bytes"


class FullFolder(Exception):
    """There is no room for a record. The text gives the reason."""


def require_writable(folder: Path, what: str, option: str) -> None:
    """Make the folder if there is none. what: the noun in the error. Raises ConfigError when the folder cannot be
    written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"The folder for {what}, {folder}, cannot be written.",
            why=f"{error.strerror}.",
            fix=f"Give another {option}, or leave it out.",
        ) from None


class Records:
    """The records of one kind, such as stored responses, as files in a folder with a subfolder for each client. suffix:
    the end of each file's name. forget_oldest: True when old records make room for a new one; otherwise a full folder
    takes no new record.

    No method may be called on an event loop, because each may touch a disk.
    """

    def __init__(
        self, folder: Path, suffix: str, bounds: Bounds, now: Callable[[], float], *, forget_oldest: bool
    ) -> None:
        self._folder, self._suffix, self._bounds = folder, suffix, bounds
        self._now, self._forget_oldest = now, forget_oldest
        self._writing = threading.Lock()

    def put(self, client: str, name: str, data: bytes) -> None:
        """Write a record, in place of one with that name. Raises FullFolder, OSError."""
        place = self._folder / (client or NO_KEY)
        with self._writing:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(client, name, len(data))
            target = place / (name + self._suffix)
            new = target.with_name(target.name + _NEW)
            try:
                with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())  # else a power cut may leave the file name without the data
                os.replace(new, target)
            except OSError:
                with contextlib.suppress(OSError):
                    new.unlink()  # a partial record would occupy room on a disk that is already full
                raise

    def get(self, client: str, name: str) -> bytes | None:
        """Returns a record; None when there is none of that name, or it is too old."""
        path = self.path(client, name)
        if path is None:
            return None
        try:
            if self._now() - path.stat().st_mtime > self._bounds.age_s:
                path.unlink()
                return None
            return path.read_bytes()
        except OSError:
            return None

    def remove(self, client: str, name: str) -> bool:
        """Remove a record. Returns True when it existed."""
        path = self.path(client, name)
        if path is None:
            return False
        try:
            path.unlink()
        except OSError:
            return False
        return True

    def names(self, client: str) -> list[str]:
        """Returns the names of a client's records, newest first."""
        return [path.name.removesuffix(self._suffix) for _, path in sorted(self._files(client), reverse=True)]

    def can_list(self, client: str) -> bool:
        """Returns True when a client's records can be listed; a client without records has an empty list."""
        try:
            os.scandir(self._folder / (client or NO_KEY)).close()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def clients(self) -> list[str]:
        """Returns all clients that have stored a record of this kind at some time."""
        try:
            found = [each.name for each in self._folder.iterdir() if each.is_dir()]
        except OSError:
            return []
        return ["" if name == NO_KEY else name for name in sorted(found)]

    def path(self, client: str, name: str) -> Path | None:
        """Returns the path of a record; None for a name that no record can have."""
        if not _NAME.fullmatch(name):
            return None
        return self._folder / (client or NO_KEY) / (name + self._suffix)

    def _files(self, client: str) -> Iterator[tuple[int, Path]]:
        try:
            entries = list(os.scandir(self._folder / (client or NO_KEY)))
        except OSError:
            return
        for entry in entries:
            if entry.name.endswith(self._suffix):
                with contextlib.suppress(OSError):
                    yield entry.stat().st_mtime_ns, Path(entry.path)

    def _make_room(self, client: str, name: str, size_bytes: int) -> None:
        bounds = self._bounds
        files = [(at, path, path.stat().st_size) for at, path in sorted(self._files(client)) if path.is_file()]
        files = [each for each in files if each[1].name != name + self._suffix]
        oldest = (self._now() - bounds.age_s) * 1e9
        total, count = sum(size for _, _, size in files) + size_bytes, len(files) + 1
        for at, path, size in files:
            too_much = total > bounds.max_bytes or count > bounds.max_count
            if at >= oldest and not (too_much and self._forget_oldest):
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total, count = total - size, count - 1
        if total > bounds.max_bytes or count > bounds.max_count:
            raise FullFolder(
                f"There is room for {bounds.max_bytes:,} bytes in {bounds.max_count:,} records, and no more. "
                f"Delete some, or start the server with a larger {bounds.option}."
            )
