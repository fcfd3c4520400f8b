"""Asks the kernel to write a file's pages to the disk now, while the program goes on.

`fsync` at the end of a large file waits for all pages at once. If writing begins early, the disk works while weights
are packed.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

_WRITE = 2
"""The value of SYNC_FILE_RANGE_WRITE: begin to write, wait for nothing."""


def begin_writing(descriptor: int, offset: int, num_bytes: int) -> None:
    """Begins to write bytes [offset, offset + num_bytes) of an open file. Does nothing where the system has no such
    call."""
    call = _call()
    if call is not None:
        call(descriptor, offset, num_bytes, _WRITE)


@functools.cache
def _call() -> Callable[[int, int, int, int], int] | None:
    try:
        call = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):  # the system is not Linux, or its C library lacks the function
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    call.restype = ctypes.c_int
    return call
