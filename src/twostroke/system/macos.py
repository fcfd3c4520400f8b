"""What macOS does in its own way. Imported in tests, never run on such a machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import socket
import tempfile
from collections.abc import Iterable, Iterator

from twostroke.system.posix import *  # noqa: F403
from twostroke.system.posix import page_bytes

LIBRARY_SUFFIX = ".dylib"
"""How the files of shared libraries end."""


def allowed_cpus() -> frozenset[int] | None:
    """Numbers of the CPUs that the calling thread may run on; None where the system does not tell."""
    return None


def performance_cores() -> int | None:
    """How many quick cores there are, where that is all that the system tells; None elsewhere."""
    value, size = ctypes.c_int32(), ctypes.c_size_t(4)
    try:
        call = ctypes.CDLL(None).sysctlbyname
    except (AttributeError, OSError):
        return None
    refused = call(b"hw.perflevel0.physicalcpu", ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return value.value if refused == 0 and value.value > 0 else None


def keep_thread_on(cpus: Iterable[int]) -> None:
    """The calling thread, and all that it begins later, run on these CPUs alone. Where that cannot be, on any."""


@contextlib.contextmanager
def beginning_on(cpus: Iterable[int]) -> Iterator[None]:
    """Threads and processes that begin inside run on these CPUs alone; with none given, on those of the caller."""
    yield


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
    return page_bytes() * os.sysconf("SC_PHYS_PAGES")


def peak_bytes() -> int:
    """The largest resident size of this process so far; 0 where the system does not tell."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes here, kilobytes on Linux


def memory_file(name: str, num_bytes: int) -> int:
    """A descriptor of memory that children may inherit, zeros at first; a file without a name where that is missing."""
    with tempfile.TemporaryFile() as file:
        descriptor = os.dup(file.fileno())
    os.truncate(descriptor, num_bytes)
    return descriptor


def unsent_bytes(sock: socket.socket) -> int:
    """Bytes that the system holds and that the peer's has not acknowledged; 0 where it does not tell."""
    return 0


def unacknowledged_packets(sock: socket.socket) -> int | None:
    """Packets that the peer's system has not acknowledged; None where the system does not tell."""
    return None
