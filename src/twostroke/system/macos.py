"""The calls that macOS has in a form of its own. The module is imported in tests and was never run on such a machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import socket
import tempfile
from collections.abc import Iterable, Iterator

from twostroke.system.absent import *  # noqa: F403
from twostroke.system.posix import *  # noqa: F403
from twostroke.system.posix import page_bytes

LIBRARY_SUFFIX = ".dylib"
"""The ending of the file names of shared libraries."""


def allowed_cpus() -> frozenset[int] | None:
    """Returns the numbers of the CPUs on which the calling thread may run; None where the system does not tell."""
    return None


def performance_cores() -> int | None:
    """Returns the number of performance cores, which is all that macOS tells about the topology of the CPUs; None where
    it is not known."""
    value, size = ctypes.c_int32(), ctypes.c_size_t(4)
    try:
        call = ctypes.CDLL(None).sysctlbyname
    except (AttributeError, OSError):
        return None
    refused = call(b"hw.perflevel0.physicalcpu", ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return value.value if refused == 0 and value.value > 0 else None


def keep_thread_on(cpus: Iterable[int]) -> None:
    """Does nothing, because macOS has no call that binds threads to CPUs."""


@contextlib.contextmanager
def beginning_on(cpus: Iterable[int]) -> Iterator[None]:
    """Does nothing, because macOS has no call that binds threads to CPUs."""
    yield


def memory_bytes() -> int:
    """Returns the free memory of the machine in bytes, or all its memory where the system does not tell how much is
    free."""
    return page_bytes() * os.sysconf("SC_PHYS_PAGES")


def peak_bytes() -> int:
    """Returns the largest resident size of this process so far, in bytes; 0 where the system does not tell."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS counts bytes here, Linux kilobytes


def memory_file(name: str, num_bytes: int) -> int:
    """Returns a descriptor of memory that children may inherit, filled with zeros at first. Where the system has no
    such memory, it is a file without a name."""
    with tempfile.TemporaryFile() as file:
        descriptor = os.dup(file.fileno())
    os.truncate(descriptor, num_bytes)
    return descriptor


def unsent_bytes(sock: socket.socket) -> int:
    """Returns the number of bytes that the system holds and that the peer's system has not acknowledged; 0 where the
    system does not tell."""
    return 0


def unacknowledged_packets(sock: socket.socket) -> int | None:
    """Returns the number of packets that the peer's system has not acknowledged; None where the system does not tell.
    """
    return None
