"""A start whose packed file is not in memory: the file is read first, in order and in large pieces, and the caller is
told how far.

Without it the first step reads the file page by page, in the order of its kernels, and nobody is told why it takes
seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import U8Array
from twostroke.system import here

PIECE_BYTES = 8 << 20
"""Read at a time."""

AHEAD_PIECES = 8
"""Pieces that the system is asked to fetch before they are read, so that the disk always has work."""

PROBE_BYTES = 256 << 10
"""A piece counts as missing where the byte so far from its beginning is: one that is read at this moment has less."""

LEAST_BYTES = 100_000_000
"""Less than this is read in a moment, by whoever needs it first."""

READING = "from the disk"
"""What `progress` is told of every piece."""

Progress = Callable[[int, int, str], None]
"""(done_bytes, total_bytes, what)"""
InMemory = Callable[[U8Array], NDArray[np.bool_]]
"""(mapped bytes) -> for each page of them, whether it is in memory."""

Compare = Callable[[int, int], None]
"""(offset, num_bytes) of a piece of the file that is in memory now."""

IN_MEMORY = 1
"""The bit of mincore's answer."""


def in_memory(mapped: U8Array) -> NDArray[np.bool_]:
    """See InMemory; all of them where the system cannot tell. `mapped` begins at a page. Asking fetches nothing."""
    found = np.full(-(-mapped.size // mmap.PAGESIZE), IN_MEMORY, np.uint8)
    call = _mincore()
    if call is not None and call(mapped.ctypes.data, mapped.size, found.ctypes.data) != 0:
        found[:] = IN_MEMORY
    return (found & IN_MEMORY).astype(bool)


@functools.cache
def _mincore() -> Callable[[int, int, int], int] | None:
    try:
        call = ctypes.CDLL(None).mincore
    except (AttributeError, OSError, TypeError):  # Windows has no library without a name
        return None
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    call.restype = ctypes.c_int
    return call


def read_cold(
    path: Path,
    mapped: U8Array,
    progress: Progress,
    probe: InMemory = in_memory,
    least_bytes: int = LEAST_BYTES,
    *,
    compare: Compare = lambda offset, num_bytes: None,
) -> int:
    """Read the pieces of which pages are not in memory, where they are `least_bytes` or more; returns their bytes.

    mapped: all of the file. compare: called with pieces that were read, in order, as long as the next one is not in
    memory: the time is the disk's. A file that cannot be read is no error here: who needs its bytes meets the same
    trouble and names it. Raises what `compare` raises.
    """
    size, pages = mapped.size, PIECE_BYTES // mmap.PAGESIZE
    there = probe(mapped)
    cold = [place * PIECE_BYTES for place in range(-(-size // PIECE_BYTES)) if not there[place * pages :][:pages].all()]
    total_bytes = sum(min(PIECE_BYTES, size - offset) for offset in cold)
    if total_bytes < least_bytes:
        return 0
    with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
        _read(file.fileno(), cold, lambda done_bytes: progress(done_bytes, total_bytes, READING), compare)
    return total_bytes


def _read(descriptor: int, offsets: list[int], tell: Callable[[int], None], compare: Compare) -> None:
    """tell: called with the bytes that were read so far. Raises OSError."""
    buffer, done_bytes, asked = bytearray(PIECE_BYTES), 0, 0
    waiting: deque[tuple[int, int]] = deque()
    for place, offset in enumerate(offsets):
        for later in offsets[max(asked, place + 1) : place + 1 + AHEAD_PIECES]:
            _fetch(descriptor, later)
        asked = place + 1 + AHEAD_PIECES
        while waiting and not here.is_in_memory(descriptor, offset + PROBE_BYTES):
            compare(*waiting.popleft())
        read_bytes = here.read_into(descriptor, buffer, offset)
        waiting.append((offset, read_bytes))
        done_bytes += read_bytes
        tell(done_bytes)


def _fetch(descriptor: int, offset: int) -> None:
    """Have the system read a piece while the program goes on."""
    here.fetch_ahead(descriptor, offset, PIECE_BYTES)
