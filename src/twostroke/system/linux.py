"""What Linux does in its own way."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Iterable, Iterator
from pathlib import Path

from twostroke.system.posix import *  # noqa: F403
from twostroke.system.posix import page_bytes

_UNACKNOWLEDGED = struct.Struct("=24xI")
"""tcpi_unacked in struct tcp_info, in packets."""

_FETCHED_BYTES = 128 << 10
"""Linux fetches no more of a file for one call than it reads ahead, and this is its usual setting."""
_NO_SUCH_CALL = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
"""The number of the call, which the C library does not have."""
_PREFERRED, _MASK_WORDS = 1, 16
"""MPOL_PREFERRED, and 64-bit words for the 1,024 nodes that Linux knows at most."""

LIBRARY_SUFFIX = ".so"
"""How the files of shared libraries end."""


def allowed_cpus() -> frozenset[int] | None:
    """Numbers of the CPUs that the calling thread may run on; None where the system does not tell."""
    return frozenset(os.sched_getaffinity(0))


def performance_cores() -> int | None:
    """How many quick cores there are, where that is all that the system tells; None elsewhere."""
    return None


def keep_thread_on(cpus: Iterable[int]) -> None:
    """The calling thread, and all that it begins later, run on these CPUs alone. Where that cannot be, on any."""
    with contextlib.suppress(OSError, ValueError):
        os.sched_setaffinity(0, cpus)


@contextlib.contextmanager
def beginning_on(cpus: Iterable[int]) -> Iterator[None]:
    """Threads and processes that begin inside run on these CPUs alone; with none given, on those of the caller."""
    chosen = frozenset(cpus)
    if not chosen:
        yield
        return
    before = os.sched_getaffinity(0)
    keep_thread_on(chosen)
    try:
        yield
    finally:
        keep_thread_on(before)


def prefer_memory_of(node: int) -> bool:
    """New memory of the calling thread, and of all that it begins later, comes from this memory node as long as that
    has some. False where the system has no such call, or refuses it."""
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
    """Room on the disk for so many bytes of a file. Raises OSError where there is none, or no such call."""
    os.posix_fallocate(descriptor, 0, num_bytes)


def fetch_ahead(descriptor: int, offset: int, num_bytes: int) -> None:
    """Have the system read a part of a file while the program goes on, where it can."""
    for first in range(offset, offset + num_bytes, _FETCHED_BYTES):
        size = min(_FETCHED_BYTES, offset + num_bytes - first)
        os.posix_fadvise(descriptor, first, size, os.POSIX_FADV_WILLNEED)


def fetch(descriptor: int, offset: int, num_bytes: int) -> int:
    """Wait until the system has a part of a file in memory, in one call during which other threads run; the bytes that
    it had, fewer at the end of the file. 0 where the system cannot. Raises OSError."""
    nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        return os.sendfile(nothing, descriptor, offset, num_bytes)
    except OSError as error:
        if error.errno not in _NO_SUCH_CALL:
            raise
        return 0
    finally:
        os.close(nothing)


def is_in_memory(descriptor: int, offset: int) -> bool:
    """Whether the system has this byte of a file in memory; True where it does not tell."""
    try:
        os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def forget(descriptor: int) -> None:
    """Have the system drop what it keeps of a file in memory, where it can."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def memory_bytes() -> int:
    """The memory of the machine that is free, or all of it where the system tells no more."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return page_bytes() * os.sysconf("SC_PHYS_PAGES")


def peak_bytes() -> int:
    """The largest resident size of this process so far; 0 where the system does not tell."""
    # Not ru_maxrss: a process inherits that of the process that started it.
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(fields["VmHWM"].split()[0]) * 1024


def memory_file(name: str, num_bytes: int) -> int:
    """A descriptor of memory that children may inherit, zeros at first; a file without a name where that is missing."""
    descriptor = os.memfd_create(name, 0)
    os.ftruncate(descriptor, num_bytes)
    return descriptor


def unsent_bytes(sock: socket.socket) -> int:
    """Bytes that the system holds and that the peer's has not acknowledged; 0 where it does not tell."""
    try:
        held = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except OSError:
        return 0
    return int(struct.unpack("=i", held)[0])


def unacknowledged_packets(sock: socket.socket) -> int | None:
    """Packets that the peer's system has not acknowledged; None where the system does not tell."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _UNACKNOWLEDGED.size)
    except OSError:
        return None
    return int(_UNACKNOWLEDGED.unpack(info)[0])
