"""The file of packed weights: written once, blob by blob; mapped read-only by every later start.

    bytes 0..63     magic with the format's version (16), header length (u64), file length (u64), blake2b-256 of the
                    header (32); little-endian
    64..            header: JSON {"key": {...}, "blobs": [[name, offset, length], ...], "sums": "...", "origin": "..."},
                    filled up with spaces
    4096-aligned    the blobs, in the planned order, up to a multiple of 4096

The reader plans offsets and lengths itself from the model and its formats, and accepts a file only where the header has
the same values. No offset from a file is ever used. The header's own digest is always checked. `sums` holds a checksum
(block_sums.py) of each block of 256 KiB from the first blob on. At every start a sample of blocks spread over the file
is compared, before anything is computed from it. All blocks are compared in the background right after the start
(background_check.py) and by `twostroke cache verify`. Files appear by atomic rename after fsync. Until then the engine
that packed them reads the same bytes through the file without a name (fresh_file.py).

Writing goes through pwrite and not through a writable mapping: a full disk is then an error and not a signal. If memory
cannot hold weights next to their file, they go through a mapping whose room on the disk was reserved before.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from twostroke.ops.operands import U8Array
from twostroke.system import here
from twostroke.weights.packed.block_sums import BLOCK_BYTES, block_sums, num_blocks
from twostroke.weights.packed.header import (
    PREAMBLE_BYTES,
    FilePlan,
    Header,
    StaleFile,
    encode,
    parse_header,
    preamble,
)
from twostroke.weights.packed.in_use import alone, mark_used, use
from twostroke.weights.packed.writeback import begin_writing

SAMPLED_BLOCKS = 32
"""The number of blocks that are compared with their checksums at every start: 8 MiB, a few milliseconds where the file
is in the page cache."""

CHUNK_BLOCKS = 64
"""The number of blocks that `PackedFile.check_all` compares with their checksums before it calls its argument `go_on`,
which may wait: 16 MiB."""

DISK_UNIT_BYTES = 512
"""The unit in which POSIX counts the room of a file (st_blocks), in bytes."""

WRITE_BYTES = 8 * BLOCK_BYTES
"""The number of bytes that are written at a time."""

RESTS = 9.0
"""The seconds that `PartialFile.finish` waits for each second in which it writes, so that a working engine is hardly
slowed down."""

GoOn = Callable[[float], bool]
"""A function go_on(wait_s) that work in the background calls between its parts. It waits `wait_s` seconds, or less once
a caller waits for the work to end. Returns False if the rest of the work should not be done."""


def always(_wait_s: float) -> bool:
    """Returns True at once: a GoOn that does not wait."""
    return True


class PartialFile:
    """A file of packed weights that does not have its final name yet. It has its full length and lies next to its final
    path.

    whole: the file's bytes, where weights are packed straight into it because memory cannot hold both the weights and
    the file.
    """

    def __init__(self, path: Path, plan: FilePlan, descriptor: int, temporary: Path, origin: str) -> None:
        """Prepares the file. Raises OSError."""
        self.path = path
        self._origin = origin
        self._plan = plan
        self._descriptor = descriptor
        self._temporary = temporary
        self._given_up = False
        self.whole: U8Array | None = None
        os.ftruncate(descriptor, plan.file_bytes)

    def take_whole(self) -> None:
        """Maps the file for writing and keeps its bytes as `whole`. The room on the disk is reserved first, so that a
        write to `whole` never causes a signal. Raises OSError."""
        here.take_room(self._descriptor, self._plan.file_bytes)
        self.whole = np.frombuffer(mmap.mmap(self._descriptor, self._plan.file_bytes), np.uint8)

    def finish(self, whole: U8Array, go_on: GoOn = always) -> None:
        """Writes all bytes with a header, makes them durable, and gives the file its final name. The file is in use
        until the descriptor is closed. whole: (plan.file_bytes,); its header part is not used. go_on: called between
        pieces to wait nine times as long as one piece took, so that a working engine is hardly slowed down. Raises
        OSError."""
        if whole.size != self._plan.file_bytes:
            raise ValueError(f"{whole.size} bytes are given, {self._plan.file_bytes} are planned")
        sums: list[str] = []
        for first in range(self._plan.data_start, self._plan.file_bytes, WRITE_BYTES):
            if self._given_up:
                return
            begin_s = time.perf_counter()
            chunk = whole[first : first + WRITE_BYTES]
            sums += block_sums(chunk)
            if whole is not self.whole:
                _write_all(self._descriptor, chunk.data, first)
            begin_writing(self._descriptor, first, chunk.size)
            go_on(RESTS * (time.perf_counter() - begin_s))
        header = encode(self._plan, "".join(sums), self._origin)
        _write_all(self._descriptor, preamble(header, self._plan.file_bytes) + header, 0)
        os.fsync(self._descriptor)
        if self._given_up:
            return
        os.replace(self._temporary, self.path)
        use(self._descriptor)
        with contextlib.suppress(OSError):  # a lost rename only means packing once more
            sync_folder(self.path.parent)

    def discard(self) -> None:
        """Gives up the file: it does not get its final name any more. Has no effect on a file that has this name
        already."""
        self._given_up = True
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


class PackedFile:
    """A file of packed weights that is mapped for reading and has a valid header. whole: all bytes of the file; they
    stay valid if the file is deleted."""

    unfinished = False

    def __init__(self, path: Path, header: Header, whole: U8Array, identity: tuple[int, int]) -> None:
        self.path = path
        self.header = header
        self.whole = whole
        self._identity = identity
        self._compared = np.zeros(self.num_blocks, bool)

    @property
    def num_blocks(self) -> int:
        """The number of blocks in the file; each has a checksum."""
        return num_blocks(self.whole.size - self.header.data_start)

    def check_bytes(self, offset: int, num_bytes: int) -> None:
        """Compares the blocks that end in these bytes of the file with their checksums. `check_all` does not compare
        these blocks again. Raises StaleFile."""
        end = offset + num_bytes
        upto = self.num_blocks if end >= self.whole.size else max(0, end - self.header.data_start) // BLOCK_BYTES
        first = max(0, offset - self.header.data_start) // BLOCK_BYTES
        if first < upto:
            self.check_blocks(first, upto - first)
            self._compared[first:upto] = True

    def check_blocks(self, first: int, count: int) -> None:
        """Compares blocks [first, first + count), fewer at the end, with their checksums. Raises StaleFile."""
        begin = self.header.data_start + first * BLOCK_BYTES
        found = block_sums(self.whole[begin : begin + count * BLOCK_BYTES])
        for place, checksum in enumerate(found, first):
            if checksum != self.header.sum_of(place):
                offset = self.header.data_start + place * BLOCK_BYTES
                raise StaleFile(
                    f"bytes {offset:,} to {min(offset + BLOCK_BYTES, self.whole.size):,} ({self.header.key_at(place)}) "
                    "do not have their checksum"
                )

    def check_sample(self) -> None:
        """Compares SAMPLED_BLOCKS blocks: the first, the last and others at equal distances between them. Raises
        StaleFile."""
        last, steps = self.num_blocks - 1, max(1, SAMPLED_BLOCKS - 1)
        for place in sorted({last * step // steps for step in range(SAMPLED_BLOCKS)}):
            self.check_blocks(place, 1)

    def check_all(self, go_on: GoOn = always, on_bytes: Callable[[int], None] = lambda num_bytes: None) -> bool:
        """Compares each block with its checksum, except those that `check_bytes` compared. Returns False where `go_on`
        returned False before the end. Raises StaleFile.

        on_bytes: called with the bytes compared so far.
        """
        for first in range(0, self.num_blocks, CHUNK_BLOCKS):
            if not go_on(0.0):
                return False
            if not self._compared[first : first + CHUNK_BLOCKS].all():
                self.check_blocks(first, CHUNK_BLOCKS)
            on_bytes(min((first + CHUNK_BLOCKS) * BLOCK_BYTES, self.whole.size))
        return True

    def close(self) -> None:
        """Records this moment as the last use. The bytes stay mapped."""
        mark_used(self.path)

    def discard(self) -> None:
        """Deletes the file, unless another file has its name now."""
        with contextlib.suppress(OSError):
            status = os.stat(self.path)
            if (status.st_dev, status.st_ino) == self._identity:
                os.unlink(self.path)


@contextlib.contextmanager
def new_file(path: Path, plan: FilePlan, origin: str = "") -> Iterator[PartialFile]:
    """Yields a PartialFile; a file that was not finished when the block ends is removed. origin: a description for
    people. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = _locked_temporary(path)
    try:
        yield PartialFile(path, plan, descriptor, Path(name), origin)
    finally:
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def map_file(path: Path, plan: FilePlan, read: Callable[[PackedFile], object] = lambda file: None) -> PackedFile:
    """Returns the file, mapped read-only, after a sample of its blocks was compared with their checksums. Raises
    StaleFile where it is not as planned.

    read: called first, to read the file into memory in order. After that, the sample, which lies in places far apart,
    comes from memory.
    """
    file = open_file(path, lambda header: header.require(plan))
    read(file)
    file.check_sample()
    mark_used(path)
    return file


def open_file(path: Path, require: Callable[[Header], None] = lambda header: None) -> PackedFile:
    """Maps a file whose header is right and is accepted by `require`; the file is in use until the mapping ends. Raises
    StaleFile."""
    with _opened(path) as descriptor:
        if not use(descriptor):
            raise StaleFile("it was removed at this moment")
        status = os.fstat(descriptor)
        header = read_header(descriptor)
        require(header)
        mapping = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
    return PackedFile(path, header, np.frombuffer(mapping, np.uint8), (status.st_dev, status.st_ino))


def read_header(descriptor: int) -> Header:
    """Returns the header of an open file, after its digest was compared. Raises StaleFile."""
    begin = here.read_at(descriptor, PREAMBLE_BYTES, 0)
    return parse_header(
        begin, lambda length: here.read_at(descriptor, length, PREAMBLE_BYTES), os.fstat(descriptor).st_size
    )


def header_of(path: Path) -> Header:
    """Returns the header of a file. Raises StaleFile."""
    with _opened(path) as descriptor:
        return read_header(descriptor)


def remove_abandoned(folder: Path) -> None:
    """Deletes partial files whose writing process is gone: a writer holds a lock on its file for as long as it lives.
    """
    for path in folder.glob("*.partial"):
        with contextlib.suppress(OSError), alone(path) as abandoned:
            if abandoned:
                os.unlink(path)


def unwritten_bytes(folder: Path) -> int:
    """Returns the number of bytes that partial files do not take on the disk yet. Their length is the full one from the
    beginning."""
    count = 0
    for path in folder.glob("*.partial"):
        with contextlib.suppress(OSError):
            status = path.stat()
            count += max(0, status.st_size - DISK_UNIT_BYTES * status.st_blocks)
    return count


def _locked_temporary(path: Path) -> tuple[int, str]:
    """Returns a new file next to `path`, locked. If another process removes the file before the lock is taken, the
    function tries again."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".partial", dir=path.parent)
        try:
            with contextlib.suppress(OSError):  # on a file system without locks nothing is swept either
                here.lock(descriptor, wait=False)
            if os.fstat(descriptor).st_nlink:
                return descriptor, name
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | here.file_flags(wait=False))
    except OSError as error:
        raise StaleFile(f"it cannot be opened: {error.strerror}") from None
    try:
        yield descriptor
    except OSError as error:
        raise StaleFile(f"it cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    done = 0
    while done < len(view):
        done += here.write_at(descriptor, view[done : done + (1 << 30)], offset + done)


def sync_folder(folder: Path) -> None:
    """Writes the names of a folder's files to the disk, so that a rename in it survives a crash. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
