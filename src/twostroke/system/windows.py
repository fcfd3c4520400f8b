"""What Windows does in its own way. Compiled and imported in tests, never run on such a machine."""

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

HAS_SOCKET_FILES = False
"""Sockets with a path (AF_UNIX): Python has none here."""
LIBRARY_SUFFIX = ".dll"
"""How the files of shared libraries end."""
LIBRARY_SUFFIX_OF_PYTHON = ".pyd"
"""How the files of Python's own extension modules end."""
_LOOK_S = 0.002
_FAR = 1 << 62
"""Locks are of a byte that no file has: here a lock keeps other processes from the bytes themselves."""
_RESET = struct.pack("hh", 1, 0)
"""SO_LINGER: on, for no time."""
_moving = threading.Lock()
"""Held while a file's position is elsewhere: the system reads and writes at the position alone."""


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
    """Numbers of the CPUs that the calling thread may run on; None where the system does not tell."""
    return None


def performance_cores() -> int | None:
    """How many quick cores there are, where that is all that the system tells; None elsewhere."""
    return None


def keep_thread_on(cpus: Iterable[int]) -> None:
    """The calling thread, and all that it begins later, run on these CPUs alone. Where that cannot be, on any."""


@contextlib.contextmanager
def beginning_on(cpus: Iterable[int]) -> Iterator[None]:
    """Threads and processes that begin inside run on these CPUs alone; with none given, on those of the caller."""
    yield


def lock(descriptor: int, *, shared: bool = False, wait: bool = True) -> None:
    """Lock an open file until its last descriptor is closed. Raises BlockingIOError where another process has it and
    there is no wait, another OSError where the file system has no locks."""
    handle = _handle(descriptor)
    place = _Overlapped(offset=_FAR & 0xFFFFFFFF, offset_high=_FAR >> 32)
    flags = (0 if shared else 2) | (0 if wait else 1)
    if not _kernel().LockFileEx(ctypes.c_void_p(handle), flags, 0, 1, 0, ctypes.byref(place)):
        raise BlockingIOError("another process has locked the file")


def read_at(descriptor: int, num_bytes: int, offset: int) -> bytes:
    """Bytes of a file from `offset` on, fewer at its end; the file's own position stays."""
    with _at(descriptor, offset):
        return os.read(descriptor, num_bytes)


def read_into(descriptor: int, view: Any, offset: int) -> int:
    """The same into memory that can be written; how many."""
    target = memoryview(view)
    found = read_at(descriptor, len(target), offset)
    target[: len(found)] = found
    return len(found)


def write_at(descriptor: int, content: Any, offset: int) -> int:
    """Bytes into a file from `offset` on; how many."""
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
    """Further flags for os.open: bytes as they are, nothing for children."""
    return getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)


def prefer_memory_of(node: int) -> bool:
    """New memory of the calling thread, and of all that it begins later, comes from this memory node as long as that
    has some. False where the system has no such call, or refuses it."""
    return False


def take_room(descriptor: int, num_bytes: int) -> None:
    """Room on the disk for so many bytes of a file. Raises OSError where there is none, or no such call."""
    raise OSError("this system does not take room for a file before it is written")


def fetch_ahead(descriptor: int, offset: int, num_bytes: int) -> None:
    """Have the system read a part of a file while the program goes on, where it can."""


def fetch(descriptor: int, offset: int, num_bytes: int) -> int:
    """Wait until the system has a part of a file in memory, in one call during which other threads run; the bytes that
    it had, fewer at the end of the file. 0 where the system cannot. Raises OSError."""
    return 0


def is_in_memory(descriptor: int, offset: int) -> bool:
    """Whether the system has this byte of a file in memory; True where it does not tell."""
    return True


def forget(descriptor: int) -> None:
    """Have the system drop what it keeps of a file in memory, where it can."""


def memory_bytes() -> int:
    """The memory of the machine that is free, or all of it where the system tells no more."""
    return int(_memory().available)


def page_bytes() -> int:
    """The size of a page of memory."""
    return 4096


def clock_ticks() -> int:
    """How many units of the system's times a second has."""
    return 1


def peak_bytes() -> int:
    """The largest resident size of this process so far; 0 where the system does not tell."""
    return 0


def address_space_bytes() -> int | None:
    """The limit on this process's addresses (`ulimit -v`); None for none."""
    return None


def limit_memory(num_bytes: int) -> None:
    """No more addresses than this for this process from now on, where the system has such a limit."""


def write_no_files() -> None:
    """This process may write no file and leave no core from now on, where the system has such a limit."""


def stand_back(niceness: int) -> None:
    """Other processes are preferred to this one from now on, where the system knows such an order."""


def end_after(*, wall_s: float | None = None, cpu_s: float | None = None) -> None:
    """End this process after so much time, where the system can; 0 takes that back."""


def user_number() -> int:
    """Tells this user from others."""
    return 0


def is_own(found: os.stat_result) -> bool:
    """Whether a folder is this user's and nobody else may write into it: folders for temporary files are, here."""
    return True


@contextlib.contextmanager
def signals_to(handle: Callable[[signal.Signals], None], kinds: Iterable[signal.Signals]) -> Iterator[None]:
    """Inside, these signals call `handle` in the running loop of the main thread."""
    loop, before = asyncio.get_running_loop(), {}
    for kind in kinds:
        before[kind] = signal.signal(kind, lambda number, _: loop.call_soon_threadsafe(handle, signal.Signals(number)))
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def start_child(
    command: Sequence[str], descriptors: Sequence[int], *, own_session: bool = False, **options: Any
) -> subprocess.Popen[bytes]:
    """A child process that inherits these descriptors under their numbers: that is not possible here."""
    raise OSError("Windows hands no descriptors to child processes: serve with one process")


def memory_file(name: str, num_bytes: int) -> int:
    """A descriptor of memory that children may inherit, zeros at first; a file without a name where that is missing."""
    with tempfile.TemporaryFile() as file:
        descriptor = os.dup(file.fileno())
    os.truncate(descriptor, num_bytes)
    return descriptor


def is_readable(pipe: Any, wait_s: float) -> bool:
    """Whether a pipe has something to read, or has ended, within so much time."""
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
    """Bytes that the system holds and that the peer's has not acknowledged; 0 where it does not tell."""
    return 0


def unacknowledged_packets(sock: socket.socket) -> int | None:
    """Packets that the peer's system has not acknowledged; None where the system does not tell."""
    return None


def is_closed_by_both(sock: socket.socket) -> bool:
    """Whether both sides of a connection have ended."""
    return sock.fileno() < 0


def is_socket_file(sock: socket.socket) -> bool:
    """Whether a socket has a path and no network."""
    return False


def private_memory(num_bytes: int) -> mmap.mmap:
    """Zeros of this process alone, from a page's begin on."""
    return mmap.mmap(-1, num_bytes)


def reset_on_close(sock: socket.socket) -> None:
    """The system gives up what the peer has not taken when the socket is closed. Raises OSError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
