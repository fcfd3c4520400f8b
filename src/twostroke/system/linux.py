"""The calls that Linux has in a form of its own."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import struct
import tempfile
import termios
from collections.abc import Iterable, Iterator
from pathlib import Path

from twostroke.system.posix import *  # noqa: F403
from twostroke.system.posix import page_bytes

_UNACKNOWLEDGED = struct.Struct("=24xI")
"""The layout of tcpi_unacked, a number of packets, in struct tcp_info."""

_FETCHED_BYTES = 128 << 10
"""The most bytes that one call may ask for. Linux fetches no more of a file for one call than it reads ahead, and this
is its usual setting."""
_NO_SUCH_CALL = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
"""The number of the system call set_mempolicy, which the C library does not have, by machine."""
_PREFERRED, _MASK_WORDS = 1, 16
"""The value of MPOL_PREFERRED, and the number of 64-bit words for the at most 1,024 nodes that Linux knows."""

LIBRARY_SUFFIX = ".so"
"""The ending of the file names of shared libraries."""


def allowed_cpus() -> frozenset[int] | None:
    """Returns the numbers of the CPUs on which the calling thread may run; None where the system does not tell."""
    try:
        return frozenset(os.sched_getaffinity(0))
    except OSError:  # a sandbox may refuse the call
        return None


def performance_cores() -> int | None:
    """Returns None: on Linux, the topology of the CPUs tells more than the number of performance cores."""
    return None


def keep_thread_on(cpus: Iterable[int]) -> None:
    """Keeps the calling thread, and everything that it starts later, on these CPUs. Where that is not possible, they
    run on any CPU."""
    with contextlib.suppress(OSError, ValueError):
        os.sched_setaffinity(0, cpus)


@contextlib.contextmanager
def beginning_on(cpus: Iterable[int]) -> Iterator[None]:
    """Threads and processes that begin inside the block run only on these CPUs. If `cpus` is empty, they run on the
    CPUs of the caller."""
    chosen, before = frozenset(cpus), allowed_cpus()
    if not chosen or before is None:
        yield
        return
    keep_thread_on(chosen)
    try:
        yield
    finally:
        keep_thread_on(before)


def prefer_memory_of(node: int) -> bool:
    """Takes new memory of the calling thread, and of everything that it starts later, from this memory node as long as
    the node has some. Returns False where the system has no such call, or refuses it."""
    number, mask = _SET_MEMPOLICY.get(os.uname().machine), (ctypes.c_ulong * _MASK_WORDS)()
    if number is None or not 0 <= node < 64 * _MASK_WORDS or ctypes.sizeof(ctypes.c_ulong) != 8:
        return False
    mask[node // 64] = 1 << node % 64
    try:
        call = ctypes.CDLL(None).syscall
    except (AttributeError, OSError):
        return False
    words = (number, _PREFERRED, ctypes.addressof(mask), 64 * _MASK_WORDS + 1)
    return bool(call(*map(ctypes.c_long, words)) == 0)


def take_room(descriptor: int, num_bytes: int) -> None:
    """Reserves `num_bytes` on the disk for a file. Raises OSError where there is no room, or where the system has no
    such call."""
    os.posix_fallocate(descriptor, 0, num_bytes)


def fetch_ahead(descriptor: int, offset: int, num_bytes: int) -> None:
    """Makes the system read a part of a file while the program goes on, where the system can."""
    for first in range(offset, offset + num_bytes, _FETCHED_BYTES):
        size = min(_FETCHED_BYTES, offset + num_bytes - first)
        with contextlib.suppress(OSError):  # a sandbox may refuse the call
            os.posix_fadvise(descriptor, first, size, os.POSIX_FADV_WILLNEED)


def fetch(descriptor: int, offset: int, num_bytes: int) -> int:
    """Waits until the system has a part of a file in memory. Other threads run meanwhile. Returns the number of bytes
    that are in memory, fewer at the end of the file; 0 where the system has no such call. Raises OSError."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:  # a sandbox may have no /dev
        return 0
    try:
        return os.sendfile(nothing, descriptor, offset, num_bytes)
    except OSError as error:
        if error.errno not in _NO_SUCH_CALL:
            raise
        return 0
    finally:
        os.close(nothing)


def is_in_memory(descriptor: int, offset: int) -> bool:
    """Returns whether the system has this byte of a file in memory; True where the system does not tell."""
    try:
        os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def forget(descriptor: int) -> None:
    """Makes the system drop the parts of a file that it keeps in memory, where it can."""
    with contextlib.suppress(OSError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def memory_bytes() -> int:
    """Returns the free memory of the machine in bytes, or all its memory where the system does not tell how much is
    free."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return page_bytes() * os.sysconf("SC_PHYS_PAGES")


def peak_bytes() -> int:
    """Returns the largest resident size of this process so far, in bytes; 0 where the system does not tell."""
    # ru_maxrss is not used, because a process inherits it from the process that started it.
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def memory_file(name: str, num_bytes: int) -> int:
    """Returns a descriptor of memory that children may inherit, filled with zeros at first. Where the system has no
    such memory, it is a file without a name."""
    try:
        descriptor = os.memfd_create(name, 0)
    except OSError:  # a sandbox may refuse the call
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, num_bytes)
    return descriptor


def unsent_bytes(sock: socket.socket) -> int:
    """Returns the number of bytes that the system holds and that the peer's system has not acknowledged; 0 where the
    system does not tell."""
    try:
        held = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except OSError:
        return 0
    return int(struct.unpack("=i", held)[0])


def unacknowledged_packets(sock: socket.socket) -> int | None:
    """Returns the number of packets that the peer's system has not acknowledged; None where the system does not tell.
    """
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _UNACKNOWLEDGED.size)
    except OSError:
        return None
    return int(_UNACKNOWLEDGED.unpack(info)[0])
