"""What Linux and macOS do alike."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import resource
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

__all__ = [
    "HAS_SOCKET_FILES",
    "LIBRARY_SUFFIX_OF_PYTHON",
    "address_space_bytes",
    "clock_ticks",
    "end_after",
    "file_flags",
    "is_closed_by_both",
    "is_own",
    "is_readable",
    "is_socket_file",
    "limit_memory",
    "lock",
    "page_bytes",
    "private_memory",
    "read_at",
    "read_into",
    "reset_on_close",
    "signals_to",
    "stand_back",
    "start_child",
    "user_number",
    "write_at",
    "write_no_files",
]

HAS_SOCKET_FILES = True
"""Sockets with a path (AF_UNIX)."""
LIBRARY_SUFFIX_OF_PYTHON = ".so"
"""How the files of Python's own extension modules end."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time."""


def lock(descriptor: int, *, shared: bool = False, wait: bool = True) -> None:
    """Lock an open file until its last descriptor is closed. Raises BlockingIOError where another process has it and
    there is no wait, another OSError where the file system has no locks."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)


def read_at(descriptor: int, num_bytes: int, offset: int) -> bytes:
    """Bytes of a file from `offset` on, fewer at its end; the file's own position stays."""
    return os.pread(descriptor, num_bytes, offset)


def read_into(descriptor: int, view: Any, offset: int) -> int:
    """The same into memory that can be written; how many."""
    return os.preadv(descriptor, [view], offset)


def write_at(descriptor: int, content: Any, offset: int) -> int:
    """Bytes into a file from `offset` on; how many."""
    return os.pwrite(descriptor, content, offset)


def file_flags(*, follow: bool = True, wait: bool = True) -> int:
    """Further flags for os.open: nothing for children; no symbolic link where `follow` is False, no wait for the other
    end of a pipe where `wait` is."""
    return os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW) | (0 if wait else os.O_NONBLOCK)


def page_bytes() -> int:
    """The size of a page of memory."""
    return os.sysconf("SC_PAGE_SIZE")


def clock_ticks() -> int:
    """How many units of the system's times a second has."""
    return os.sysconf("SC_CLK_TCK")


def address_space_bytes() -> int | None:
    """The limit on this process's addresses (`ulimit -v`); None for none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def limit_memory(num_bytes: int) -> None:
    """No more addresses than this for this process from now on, where the system has such a limit."""
    resource.setrlimit(resource.RLIMIT_AS, (num_bytes, num_bytes))


def write_no_files() -> None:
    """This process may write no file and leave no core from now on, where the system has such a limit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def stand_back(niceness: int) -> None:
    """Other processes are preferred to this one from now on, where the system knows such an order."""
    os.nice(niceness)


def end_after(*, wall_s: float | None = None, cpu_s: float | None = None) -> None:
    """End this process after so much time, where the system can; 0 takes that back."""
    if wall_s is not None:
        signal.setitimer(signal.ITIMER_REAL, wall_s)
    if cpu_s is not None:
        signal.setitimer(signal.ITIMER_PROF, cpu_s)


def user_number() -> int:
    """Tells this user from others."""
    return os.getuid()


def is_own(found: os.stat_result) -> bool:
    """Whether a folder is this user's and nobody else may write into it."""
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


@contextlib.contextmanager
def signals_to(handle: Callable[[signal.Signals], None], kinds: Iterable[signal.Signals]) -> Iterator[None]:
    """Inside, these signals call `handle` in the running loop of the main thread."""
    import asyncio  # a start reads weights ahead before it imports as much as this

    loop, taken = asyncio.get_running_loop(), list(kinds)
    for kind in taken:
        loop.add_signal_handler(kind, handle, kind)
    try:
        yield
    finally:
        for kind in taken:
            loop.remove_signal_handler(kind)


def start_child(
    command: Sequence[str], descriptors: Sequence[int], *, own_session: bool = False, **options: Any
) -> subprocess.Popen[bytes]:
    """A child process that inherits these descriptors under their numbers. options: further arguments of Popen.
    own_session: signals of the terminal do not reach it."""
    import subprocess

    return subprocess.Popen(command, pass_fds=tuple(descriptors), start_new_session=own_session, **options)


def is_readable(pipe: Any, wait_s: float) -> bool:
    """Whether a pipe has something to read, or has ended, within so much time."""
    return bool(select.select([pipe], [], [], wait_s)[0])


def is_closed_by_both(sock: socket.socket) -> bool:
    """Whether both sides of a connection have ended."""
    poll = select.poll()
    poll.register(sock.fileno(), 0)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))


def is_socket_file(sock: socket.socket) -> bool:
    """Whether a socket has a path and no network."""
    return sock.family == socket.AF_UNIX


def private_memory(num_bytes: int) -> mmap.mmap:
    """Zeros of this process alone, from a page's begin on."""
    return mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def reset_on_close(sock: socket.socket) -> None:
    """The system gives up what the peer has not taken when the socket is closed. Raises OSError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
