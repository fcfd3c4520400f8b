"""The calls that Windows has in a form of its own. The module is compiled and imported in tests and was never run on
such a machine."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import mmap
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from twostroke.system.absent import *  # noqa: F403

APART: tuple[dict[str, Any], ...] = ({},)
"""Arguments of Popen by which Ctrl-C of a terminal reaches only the parent. On Windows, no argument is passed for this.
"""
HAS_SOCKET_FILES = False
"""Whether there are sockets with a path (AF_UNIX): Python has none on Windows."""
LIBRARY_SUFFIX = ".dll"
"""The ending of the file names of shared libraries."""
LIBRARY_SUFFIX_OF_PYTHON = ".pyd"
"""The ending of the file names of Python's own extension modules."""
_LOOK_S = 0.002
_FAR = 1 << 62
"""The offset of the byte that is locked, which no file has: on Windows, a lock keeps other processes from the locked
bytes themselves."""
_RESET = struct.pack("hh", 1, 0)
"""The value of SO_LINGER: on, with a time of 0 seconds."""
_moving = threading.Lock()
"""Held while a file's position is changed: Windows reads and writes only at the position."""


class _Overlapped(ctypes.Structure):
    _fields_ = [
        ("internal", ctypes.c_void_p),
        ("internal_high", ctypes.c_void_p),
        ("offset", ctypes.c_uint32),
        ("offset_high", ctypes.c_uint32),
        ("event", ctypes.c_void_p),
    ]


class _MemoryStatus(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint32), ("load", ctypes.c_uint32)] + [
        (name, ctypes.c_uint64)
        for name in ("total", "available", "total_page", "available_page", "total_own", "available_own", "extended")
    ]


def _kernel() -> Any:
    return ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]


def _handle(descriptor: int) -> int:
    import msvcrt

    return int(msvcrt.get_osfhandle(descriptor))  # type: ignore[attr-defined]


def _memory() -> _MemoryStatus:
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    _kernel().GlobalMemoryStatusEx(ctypes.byref(status))
    return status


def allowed_cpus() -> frozenset[int] | None:
    """Returns the numbers of the CPUs on which the calling thread may run; always None on Windows, which means unknown.
    """
    return None


def performance_cores() -> int | None:
    """Returns the number of performance cores; always None on Windows, which means unknown."""
    return None


def keep_thread_on(cpus: Iterable[int]) -> None:
    """Does nothing: on Windows, threads run on any CPU."""


@contextlib.contextmanager
def beginning_on(cpus: Iterable[int]) -> Iterator[None]:
    """Does nothing: on Windows, threads and processes begin on any CPU."""
    yield


def lock(descriptor: int, *, shared: bool = False, wait: bool = True) -> None:
    """Locks an open file until its last descriptor is closed. Raises BlockingIOError where another process has the lock
    and `wait` is False, another OSError where the file system has no locks."""
    handle = _handle(descriptor)
    place = _Overlapped(offset=_FAR & 0xFFFFFFFF, offset_high=_FAR >> 32)
    flags = (0 if shared else 2) | (0 if wait else 1)
    if not _kernel().LockFileEx(ctypes.c_void_p(handle), flags, 0, 1, 0, ctypes.byref(place)):
        raise BlockingIOError("another process has locked the file")


def read_at(descriptor: int, num_bytes: int, offset: int) -> bytes:
    """Returns bytes of a file, beginning at `offset`, fewer at its end; the file's own position does not change."""
    with _at(descriptor, offset):
        return os.read(descriptor, num_bytes)


def read_into(descriptor: int, view: Any, offset: int) -> int:
    """Reads bytes of a file, beginning at `offset`, into memory that can be written. Returns their number; the file's
    own position does not change."""
    target = memoryview(view)
    found = read_at(descriptor, len(target), offset)
    target[: len(found)] = found
    return len(found)


def write_at(descriptor: int, content: Any, offset: int) -> int:
    """Writes bytes into a file, beginning at `offset`. Returns their number."""
    with _at(descriptor, offset):
        return os.write(descriptor, content)


@contextlib.contextmanager
def _at(descriptor: int, offset: int) -> Iterator[None]:
    with _moving:
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, offset, os.SEEK_SET)
        try:
            yield
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)


def file_flags(*, follow: bool = True, wait: bool = True) -> int:
    """Returns additional flags for os.open: bytes are not changed, and children inherit nothing."""
    return getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)


def memory_bytes() -> int:
    """Returns the free memory of the machine in bytes, or all its memory where the system does not tell how much is
    free."""
    return int(_memory().available)


def page_bytes() -> int:
    """Returns the size of a page of memory, in bytes."""
    return 4096


def clock_ticks() -> int:
    """Returns how many units a second has in the processor times that the system reports for processes."""
    return 1


def peak_bytes() -> int:
    """Returns the largest resident size of this process so far, in bytes; always 0 on Windows, which means unknown."""
    return 0


def address_space_bytes() -> int | None:
    """Returns the limit on this process's address space in bytes; always None, because no such limit is read on
    Windows."""
    return None


def limit_memory(num_bytes: int) -> None:
    """Does nothing: no limit on memory is set on Windows."""


def write_no_files() -> None:
    """Does nothing. On other systems this call forbids the process to write files; Windows has no such limit."""


def stand_back(niceness: int) -> None:
    """Does nothing: priorities are not changed on Windows."""


def end_after(*, wall_s: float | None = None, cpu_s: float | None = None) -> None:
    """Does nothing: no such timer is set on Windows."""


def user_number() -> int:
    """Returns a number that differs from user to user; always 0 on Windows."""
    return 0


def is_own(found: os.stat_result) -> bool:
    """Returns whether a folder belongs to this user and nobody else may write into it. Always True on Windows, where
    each user has a folder of their own for temporary files."""
    return True


def signals_from_now(handle: Callable[[signal.Signals], None], kinds: Iterable[signal.Signals]) -> None:
    """Makes these signals call `handle` in the running loop of the main thread; after the loop is closed, they do
    nothing."""
    loop = asyncio.get_running_loop()

    def call(number: int, _frame: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(handle, signal.Signals(number))

    for kind in kinds:
        signal.signal(kind, call)


@contextlib.contextmanager
def signals_to(handle: Callable[[signal.Signals], None], kinds: Iterable[signal.Signals]) -> Iterator[None]:
    """Makes these signals call `handle` in the running loop of the main thread, inside the block."""
    loop, before = asyncio.get_running_loop(), {}
    for kind in kinds:
        before[kind] = signal.signal(kind, lambda number, _: loop.call_soon_threadsafe(handle, signal.Signals(number)))
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def start_child(
    command: Sequence[str], descriptors: Sequence[int], **options: Any
) -> subprocess.Popen[bytes]:
    """Raises OSError: on Windows, a child process cannot inherit these descriptors under their numbers."""
    raise OSError("Windows hands no descriptors to child processes: serve with one process")


def most_open_files() -> int | None:
    """Returns how many files and connections this process may have open; None, because Windows has no such limit."""
    return None


def memory_file(name: str, num_bytes: int) -> int:
    """Returns a descriptor of `num_bytes` bytes of memory that children may inherit, filled with zeros at first. On
    Windows it is a file without a name."""
    with tempfile.TemporaryFile() as file:
        descriptor = os.dup(file.fileno())
    os.truncate(descriptor, num_bytes)
    return descriptor


def is_readable(pipe: Any, wait_s: float) -> bool:
    """Returns whether a pipe has something to read, or has ended, within `wait_s` seconds."""
    handle = _handle(pipe.fileno())
    until, left = time.monotonic() + wait_s, ctypes.c_uint32()
    while True:
        found = _kernel().PeekNamedPipe(ctypes.c_void_p(handle), None, 0, None, ctypes.byref(left), None)
        if not found or left.value:
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_S)


def unsent_bytes(sock: socket.socket) -> int:
    """Returns the number of bytes that the system holds and that the peer's system has not acknowledged; always 0 on
    Windows, which means unknown."""
    return 0


def unacknowledged_packets(sock: socket.socket) -> int | None:
    """Returns the number of packets that the peer's system has not acknowledged; always None on Windows, which means
    unknown."""
    return None


def is_closed_by_both(sock: socket.socket) -> bool:
    """Returns whether both sides of a connection have ended; on Windows, whether this side was closed."""
    return sock.fileno() < 0


def is_socket_file(sock: socket.socket) -> bool:
    """Returns whether a socket is bound to a path (AF_UNIX); always False on Windows."""
    return False


def private_memory(num_bytes: int) -> mmap.mmap:
    """Returns memory of this process alone, filled with zeros, that begins at a page."""
    return mmap.mmap(-1, num_bytes)


def reset_on_close(sock: socket.socket) -> None:
    """Makes the system drop the data that the peer has not taken when the socket is closed. Raises OSError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
