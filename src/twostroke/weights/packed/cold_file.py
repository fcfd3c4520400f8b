"""Reads a packed file that is not in memory before a start uses it, in order and in large pieces, and reports the
progress.

Without this, the first step reads the file page by page, in the order of its kernels. It takes seconds, and no progress
shows why.
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
"""The number of bytes that are read at a time."""

AHEAD_PIECES = 8
"""The number of pieces that the system is asked to fetch before they are read, so that the disk always has work."""

PROBE_BYTES = 256 << 10
"""The distance from a piece's beginning to the byte that is probed. A piece counts as missing where this byte is
missing: a piece that is being read at this moment has only its beginning in memory."""

LEAST_BYTES = 100_000_000
"""The least number of missing bytes that are read in advance. Fewer bytes are read in a moment, by the code that needs
them first."""

READING = "from the disk"
"""The text with which `progress` is called for each PIECE_BYTES of the file that were read."""

Progress = Callable[[int, int, str], None]
"""A function that is called with (done_bytes, total_bytes, what)."""
InMemory = Callable[[U8Array], NDArray[np.bool_]]
"""A function that returns, from mapped bytes, whether each page of them is in memory."""

Compare = Callable[[int, int], None]
"""A function that compares bytes [offset, offset + num_bytes) of the file with their checksums. It is called after
these bytes were read into memory."""

IN_MEMORY = 1
"""The bit of mincore's answer that means that a page is in memory."""


def in_memory(mapped: U8Array) -> NDArray[np.bool_]:
    """Returns for each page of the mapped bytes whether it is in memory; True for all pages where the system cannot
    tell. `mapped` begins at a page. The call itself fetches no page."""
    found = np.full(-(-mapped.size // mmap.PAGESIZE), IN_MEMORY, np.uint8)
    call = _mincore()
    if call is not None and call(mapped.ctypes.data, mapped.size, found.ctypes.data) != 0:
        found[:] = IN_MEMORY
    return (found & IN_MEMORY).astype(bool)


@functools.cache
def _mincore() -> Callable[[int, int, int], int] | None:
    try:
        call = ctypes.CDLL(None).mincore
    except (AttributeError, OSError, TypeError):  # Windows cannot open CDLL(None)
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
    """Reads the pieces that have pages outside memory, if they are `least_bytes` or more; returns their bytes.

    mapped: the whole file. compare: called with pieces that were read, in order, whenever the next piece is not in
    memory yet: this uses the time in which the disk reads. A file that cannot be read is not an error of this function:
    the code that needs its bytes meets the same failure and names it. Raises the errors of `compare`.
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
    """Reads the pieces at these offsets. tell: called with the number of bytes read so far. Raises OSError."""
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
    here.fetch_ahead(descriptor, offset, PIECE_BYTES)
