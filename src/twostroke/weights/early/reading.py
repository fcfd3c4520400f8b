"""Reads a model's files from the disk in a thread, while the start of the program still imports modules.

Parts that are not in memory are read in the order of the file. A few long system calls read them, during which other
Python threads run. The parts are found before the thread begins: a thread that asks for each piece would wait for the
interpreter, which a tokenizer holds for seconds. This module imports only modules that each start needs first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from twostroke.system import here
from twostroke.system.starting import begun

PIECE_BYTES = 8 << 20
"""The least number of bytes that is read at a time, except at the end of a file."""
PROBE_BYTES = 2 << 20
"""The distance in bytes between the bytes of a piece that are probed. Where all probed bytes of a piece are in memory,
the piece is not read."""
MOST_AT_ONCE = 1 << 30
"""The most bytes that are read in one call: the system accepts a little less than 2 GiB."""
LAST_STREAM = 2
"""The descriptor of standard error."""
MEMORY_SHARE = 0.5
"""The share of the free memory up to which files are read early. Larger files are left to the engine: the system could
drop bytes that were read early."""


class FilePart(NamedTuple):
    """Bytes [first, end) of a file."""

    first: int
    end: int


class Fetched(Protocol):
    """The interface of a file that is read into the system's page cache, piece by piece. SystemFile has this interface.
    """

    num_bytes: int

    def is_in_memory(self, offset: int) -> bool:
        """Returns whether the byte at `offset` is in memory."""

    def fetch(self, offset: int, num_bytes: int) -> int:
        """Waits until `num_bytes` bytes are in memory. Returns their number; 0 where the operating system has no call
        that reads a file into memory. Raises OSError."""


class SystemFile:
    """A file of this machine, opened by its path; tests use another `Fetched`. Satisfies `Fetched`."""

    def __init__(self, path: str) -> None:
        """Opens the file. Raises OSError, also where the file would get one of the descriptors 0 to 2 because a
        standard stream is closed."""
        self._descriptor = os.open(path, os.O_RDONLY | here.file_flags(wait=False))
        self.num_bytes = os.fstat(self._descriptor).st_size
        if self._descriptor <= LAST_STREAM:
            self.close()
            raise OSError(errno.EBADF, "a standard stream is closed")

    def is_in_memory(self, offset: int) -> bool:
        return here.is_in_memory(self._descriptor, offset)

    def fetch(self, offset: int, num_bytes: int) -> int:
        return here.fetch(self._descriptor, offset, num_bytes)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)


def missing_parts(file: Fetched) -> list[FilePart]:
    """Returns the parts of the file that are not in memory, in order: whole pieces, joined where they touch."""
    found: list[FilePart] = []
    for first in range(0, file.num_bytes, PIECE_BYTES):
        end = min(first + PIECE_BYTES, file.num_bytes)
        if all(file.is_in_memory(offset) for offset in (*range(first, end, PROBE_BYTES), end - 1)):
            continue
        if found and found[-1].end == first:
            found[-1] = FilePart(found[-1].first, end)
        else:
            found.append(FilePart(first, end))
    return found


def read_parts(file: Fetched, parts: Iterable[FilePart]) -> int:
    """Reads the parts into memory, one after the other, and returns the number of bytes. Stops where `fetch` returns 0.
    """
    read_bytes = 0
    for part in parts:
        at = part.first
        while at < part.end:
            got = file.fetch(at, min(part.end - at, MOST_AT_ONCE))
            if got <= 0:
                return read_bytes
            at, read_bytes = at + got, read_bytes + got
    return read_bytes


def begin_reading(paths: Iterable[str], free_bytes: int) -> threading.Thread | None:
    """Begins to read the files, in their order, in a thread, and returns the thread. Returns None where all files are
    in memory, where memory cannot hold them, or where the system begins no more threads.

    A failure is not an error of this function: the code that needs the bytes meets the same failure and names it.
    """
    work = []
    with contextlib.ExitStack() as closing:
        for path in paths:
            with contextlib.suppress(OSError):
                file = SystemFile(path)
                closing.callback(file.close)
                work.append((file, missing_parts(file)))
        if not any(parts for _, parts in work) or sum(file.num_bytes for file, _ in work) > MEMORY_SHARE * free_bytes:
            return None
        left = closing.pop_all()
        thread = threading.Thread(target=_read, args=(work, left), name="twostroke-early", daemon=True)
        if not begun(thread):
            left.close()
            return None
    return thread


def _read(work: list[tuple[SystemFile, list[FilePart]]], closing: contextlib.ExitStack) -> None:
    with closing, contextlib.suppress(OSError):
        for file, parts in work:
            read_parts(file, parts)


def weight_files(model: str) -> Iterator[str]:
    """Yields the files with weights of a model that the user names by a path: a GGUF file with its parts, or the
    safetensors files of a folder. Yields nothing for any other text."""
    with contextlib.suppress(OSError):
        if os.path.isdir(model):
            yield from (entry.path for entry in sorted(os.scandir(model), key=_name) if _is_weights(entry))
        elif model.lower().endswith(".gguf") and os.path.isfile(model):
            stem, _, rest = model.rpartition("-00001-of-")
            names = sorted(os.scandir(os.path.dirname(model) or "."), key=_name) if stem else []
            kept = os.path.basename(stem) + "-"
            split = [entry.path for entry in names if entry.name.startswith(kept) and entry.name.endswith(rest)]
            yield from split or [model]


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _is_weights(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(".safetensors") and not entry.name.startswith(("adapter_model", "consolidated", "."))
