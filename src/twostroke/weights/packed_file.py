"""The file of packed weights: written once, blob by blob; mapped read-only by every later start.

    bytes 0..63     magic (16), header length (u64), file length (u64), blake2b-256 of the header (32); little-endian
    64..            header: JSON {"key": {...}, "blobs": [[name, offset, length, crc32, sample], ...]}
    4096-aligned    the blobs, in the planned order

The reader plans offsets and lengths itself from the model and its formats, and takes a file only where the header says
the same: no offset that a file claims is ever used. The header's own digest is always checked. Of each blob, `sample`
(blake2b-128 of its first, middle and last 4 KiB) is checked at every start; `crc32` of all its bytes is there for
`verify`, because reading everything would cost the second start what it is meant to save. Files appear by atomic
rename after fsync, so a torn file can only come from a broken disk; samples and crc are for those.

Writing goes through pwrite and not through a writable mapping: a full disk is then an error and not a signal.

Knows: bytes and files.
Must not know: what is in the blobs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twostroke.ops.operands import U8Array
from twostroke.weights.blobs import Blob, aligned_bytes

MAGIC = b"TWOSTROKE PACK 1"
PREAMBLE_BYTES = 64
PAGE_BYTES = 4096
SAMPLE_BYTES = 4096
MAX_HEADER_BYTES = 64 << 20

Key = Mapping[str, str]
"""Everything that the bytes depend on: fingerprint, formats, layout. Two files with equal keys are interchangeable."""


class StaleFile(Exception):
    """This file is not what is wanted: another version, key or length, or damaged. The reason is its text."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a blob lies."""

    key: str
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class FilePlan:
    """Offsets of all blobs, and the length of the file; a function of key and blobs alone."""

    key: Key
    extents: tuple[Extent, ...]
    header_bytes: int
    file_bytes: int


def plan_file(key: Key, blobs: tuple[Blob, ...]) -> FilePlan:
    """Lay blobs out behind the header, each at a multiple of 4096."""
    zeros = [[blob.key, "0" * 16, blob.num_bytes, "0" * 8, "0" * 32] for blob in blobs]
    header_bytes = len(_encode(key, zeros))
    extents, end = [], PREAMBLE_BYTES + header_bytes
    for blob in blobs:
        offset = -(-end // PAGE_BYTES) * PAGE_BYTES
        extents.append(Extent(blob.key, offset, blob.num_bytes))
        end = offset + blob.num_bytes
    return FilePlan(key, tuple(extents), header_bytes, end)


class FileTarget:
    """A BlobTarget that writes to a partial file beside its final path; `finish` gives it the final name."""

    def __init__(self, path: Path, plan: FilePlan, descriptor: int, temporary: Path) -> None:
        self._path = path
        self._plan = plan
        self._descriptor = descriptor
        self._temporary = temporary
        self._extents = {extent.key: extent for extent in plan.extents}
        self._checksums = {extent.key: 0 for extent in plan.extents}
        self._written = {extent.key: 0 for extent in plan.extents}

    def area(self, key: str, first_byte: int, num_bytes: int) -> U8Array:
        """See BlobTarget."""
        return aligned_bytes(num_bytes)

    def put(self, key: str, first_byte: int, area: U8Array) -> None:
        """See BlobTarget. Raises OSError where the disk is full."""
        extent = self._extents[key]
        if first_byte != self._written[key] or first_byte + area.size > extent.num_bytes:
            raise ValueError(f"{key}: bytes [{first_byte}, {first_byte + area.size}) out of order or too many")
        _write_all(self._descriptor, area.data, extent.offset + first_byte)
        self._checksums[key] = zlib.crc32(area.data, self._checksums[key])
        self._written[key] += area.size

    def finish(self) -> None:
        """Write the header, make everything durable, and let the file appear under its path. Raises OSError."""
        for extent in self._plan.extents:
            if self._written[extent.key] != extent.num_bytes:
                raise ValueError(f"{extent.key}: {self._written[extent.key]} of {extent.num_bytes} bytes were written")
        rows = [
            [e.key, f"{e.offset:016x}", e.num_bytes, f"{self._checksums[e.key]:08x}", _sample(self._descriptor, e)]
            for e in self._plan.extents
        ]
        header = _encode(self._plan.key, rows)
        os.ftruncate(self._descriptor, self._plan.file_bytes)
        _write_all(self._descriptor, _preamble(header, self._plan.file_bytes) + header, 0)
        os.fsync(self._descriptor)
        os.replace(self._temporary, self._path)
        _sync_folder(self._path.parent)


@contextlib.contextmanager
def new_file(path: Path, plan: FilePlan) -> Iterator[FileTarget]:
    """A FileTarget; what was not finished when the block ends is removed. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = _locked_temporary(path)
    try:
        yield FileTarget(path, plan, descriptor, Path(name))
    finally:
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def map_file(path: Path, plan: FilePlan) -> tuple[U8Array, dict[str, U8Array]]:
    """-> the whole file, mapped read-only, and its blobs as views. Raises StaleFile where it is not as planned."""
    with _opened(path) as descriptor:
        _check(descriptor, plan)
        mapping = mmap.mmap(descriptor, plan.file_bytes, access=mmap.ACCESS_READ)
    whole = np.frombuffer(mapping, np.uint8)
    return whole, {e.key: whole[e.offset : e.offset + e.num_bytes] for e in plan.extents}


def verify(path: Path, plan: FilePlan) -> None:
    """Read every byte and compare every checksum. Raises StaleFile."""
    with _opened(path) as descriptor:
        rows = _check(descriptor, plan)
        for extent, row in zip(plan.extents, rows, strict=True):
            checksum, done = 0, 0
            while done < extent.num_bytes:
                part = os.pread(descriptor, min(1 << 24, extent.num_bytes - done), extent.offset + done)
                checksum, done = zlib.crc32(part, checksum), done + len(part)
            if f"{checksum:08x}" != row[3]:
                raise StaleFile(f"the bytes of {extent.key} do not have their checksum")


def remove_abandoned(folder: Path) -> None:
    """Delete partial files whose writer is gone: a writer holds a lock on its file for as long as it lives."""
    for path in folder.glob("*.partial"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            finally:
                os.close(descriptor)


def _locked_temporary(path: Path) -> tuple[int, str]:
    """A new file beside `path`, locked. Another process may sweep it away before the lock is taken: then once more."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".partial", dir=path.parent)
        try:
            with contextlib.suppress(OSError):  # a file system without locks has no sweeping either
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return descriptor, name
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise StaleFile(f"it cannot be opened: {error.strerror}") from None
    try:
        yield descriptor
    except OSError as error:
        raise StaleFile(f"it cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _check(descriptor: int, plan: FilePlan) -> list[list[Any]]:
    """Compare everything but the bodies with the plan; returns the header's rows."""
    file_bytes = os.fstat(descriptor).st_size
    if file_bytes != plan.file_bytes:
        raise StaleFile(f"it has {file_bytes:,} bytes, expected {plan.file_bytes:,}")
    preamble = os.pread(descriptor, PREAMBLE_BYTES, 0)
    header = os.pread(descriptor, plan.header_bytes, PREAMBLE_BYTES)
    if plan.header_bytes > MAX_HEADER_BYTES or preamble != _preamble(header, plan.file_bytes):
        raise StaleFile("its header is of another version, or damaged")
    try:
        rows = json.loads(header)["blobs"]
        said = [(row[0], int(row[1], 16), row[2]) for row in rows]
        same = all(len(row) == 5 for row in rows) and header == _encode(plan.key, rows)
        same = same and said == [(e.key, e.offset, e.num_bytes) for e in plan.extents]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        same = False
    if not same:
        raise StaleFile("it holds another model, format or layout")
    for extent, row in zip(plan.extents, rows, strict=True):
        if _sample(descriptor, extent) != row[4]:
            raise StaleFile(f"the bytes of {extent.key} are not those that were written")
    return list(rows)


def _encode(key: Key, rows: list[list[Any]]) -> bytes:
    return json.dumps({"key": dict(sorted(key.items())), "blobs": rows}, separators=(",", ":")).encode()


def _preamble(header: bytes, file_bytes: int) -> bytes:
    digest = hashlib.blake2b(header, digest_size=32).digest()
    return MAGIC + len(header).to_bytes(8, "little") + file_bytes.to_bytes(8, "little") + digest


def _sample(descriptor: int, extent: Extent) -> str:
    digest = hashlib.blake2b(digest_size=16)
    last = max(0, extent.num_bytes - SAMPLE_BYTES)
    for first in (0, last // 2, last):
        digest.update(os.pread(descriptor, min(SAMPLE_BYTES, extent.num_bytes - first), extent.offset + first))
    return digest.hexdigest()


def _write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    done = 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done : done + (1 << 30)], offset + done)


def _sync_folder(folder: Path) -> None:
    """Make the rename durable where the system allows it; a lost rename only costs another packing."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
