"""The calls that are the same on Linux and macOS."""

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
    "APART",
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
    "most_open_files",
    "page_bytes",
    "private_memory",
    "read_at",
    "read_into",
    "reset_on_close",
    "signals_from_now",
    "signals_to",
    "stand_back",
    "start_child",
    "user_number",
    "write_at",
    "write_no_files",
]

APART: tuple[dict[str, Any], ...] = ({"start_new_session": True}, {"process_group": 0}, {})
"""Arguments of Popen by which Ctrl-C of a terminal reaches only the parent, the best ones first. A sandbox may refuse
some of them."""
HAS_SOCKET_FILES = True
"""Whether there are sockets with a path (AF_UNIX)."""
LIBRARY_SUFFIX_OF_PYTHON = ".so"
"""The ending of the file names of Python's own extension modules."""
_RESET = struct.pack("ii", 1, 0)
"""The value of SO_LINGER: on, with a time of 0 seconds."""


def lock(descriptor: int, *, shared: bool = False, wait: bool = True) -> None:
    """Locks an open file until its last descriptor is closed. Raises BlockingIOError where another process has the lock
    and `wait` is False, another OSError where the file system has no locks."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)


def read_at(descriptor: int, num_bytes: int, offset: int) -> bytes:
    """Returns bytes of a file, beginning at `offset`, fewer at its end; the file's own position does not change."""
    return os.pread(descriptor, num_bytes, offset)


def read_into(descriptor: int, view: Any, offset: int) -> int:
    """Reads bytes of a file, beginning at `offset`, into memory that can be written. Returns their number; the file's
    own position does not change."""
    return os.preadv(descriptor, [view], offset)


def write_at(descriptor: int, content: Any, offset: int) -> int:
    """Writes bytes into a file, beginning at `offset`. Returns their number."""
    return os.pwrite(descriptor, content, offset)


def file_flags(*, follow: bool = True, wait: bool = True) -> int:
    """Returns additional flags for os.open: children inherit nothing. With `follow` False no symbolic link is followed,
    with `wait` False the other end of a pipe is not waited for."""
    return os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW) | (0 if wait else os.O_NONBLOCK)


def page_bytes() -> int:
    """Returns the size of a page of memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE")


def clock_ticks() -> int:
    """Returns how many units a second has in the processor times that the system reports for processes."""
    return os.sysconf("SC_CLK_TCK")


def address_space_bytes() -> int | None:
    """Returns the limit on this process's address space (`ulimit -v`) in bytes; None where there is no limit, or where
    the system does not tell."""
    try:
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    except OSError:  # a sandbox may refuse the call
        return None
    return None if soft == resource.RLIM_INFINITY else soft


def most_open_files() -> int | None:
    """Returns how many files and connections this process may have open (`ulimit -n`); None where the system does not
    tell."""
    try:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except OSError:  # a sandbox may refuse the call
        return None
    return None if soft == resource.RLIM_INFINITY else soft


def limit_memory(num_bytes: int) -> None:
    """Limits this process to `num_bytes` of address space from now on, where the system has such a limit. A lower limit
    (`ulimit -v`) stays in force. Raises OSError where a sandbox refuses the call."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = num_bytes if hard == resource.RLIM_INFINITY else min(hard, num_bytes)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def write_no_files() -> None:
    """Forbids this process to write files and to leave a core from now on, where the system has such a limit. Raises
    OSError where a sandbox refuses the call."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def stand_back(niceness: int) -> None:
    """Lets other processes run before this one from now on, where the system has such a priority and allows it."""
    with contextlib.suppress(OSError):
        os.nice(niceness)


def end_after(*, wall_s: float | None = None, cpu_s: float | None = None) -> None:
    """Ends this process after `wall_s` seconds, or after `cpu_s` seconds of processor time, where the system can; 0
    cancels this."""
    for clock, seconds in ((signal.ITIMER_REAL, wall_s), (signal.ITIMER_PROF, cpu_s)):
        if seconds is not None:
            with contextlib.suppress(OSError):  # a sandbox may refuse the call
                signal.setitimer(clock, seconds)


def user_number() -> int:
    """Returns a number that differs from user to user."""
    return os.getuid()


def is_own(found: os.stat_result) -> bool:
    """Returns whether a folder belongs to this user and nobody else may write into it."""
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def signals_from_now(handle: Callable[[signal.Signals], None], kinds: Iterable[signal.Signals]) -> None:
    """Makes these signals call `handle` in the running loop of the main thread, until the loop is closed."""
    import asyncio  # imported here, because a start reads weights before it imports large modules

    for kind in kinds:
        asyncio.get_running_loop().add_signal_handler(kind, handle, kind)


@contextlib.contextmanager
def signals_to(handle: Callable[[signal.Signals], None], kinds: Iterable[signal.Signals]) -> Iterator[None]:
    """Makes these signals call `handle` in the running loop of the main thread, inside the block."""
    import asyncio  # imported here, because a start reads weights before it imports large modules

    loop, taken = asyncio.get_running_loop(), list(kinds)
    for kind in taken:
        loop.add_signal_handler(kind, handle, kind)
    try:
        yield
    finally:
        for kind in taken:
            loop.remove_signal_handler(kind)


def start_child(
    command: Sequence[str], descriptors: Sequence[int], **options: Any
) -> subprocess.Popen[bytes]:
    """Starts a child process that inherits these descriptors under their numbers. options: other arguments of Popen.
    """
    import subprocess

    return subprocess.Popen(command, pass_fds=tuple(descriptors), **options)


def is_readable(pipe: Any, wait_s: float) -> bool:
    """Returns whether a pipe has something to read, or has ended, within `wait_s` seconds."""
    return bool(select.select([pipe], [], [], wait_s)[0])


def is_closed_by_both(sock: socket.socket) -> bool:
    """Returns whether both sides of a connection have ended."""
    poll = select.poll()
    poll.register(sock.fileno(), 0)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))


def is_socket_file(sock: socket.socket) -> bool:
    """Returns whether a socket is bound to a path (AF_UNIX) and not to a network address."""
    return sock.family == socket.AF_UNIX


def private_memory(num_bytes: int) -> mmap.mmap:
    """Returns memory of this process alone, filled with zeros, that begins at a page."""
    return mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def reset_on_close(sock: socket.socket) -> None:
    """Makes the system drop the data that the peer has not taken when the socket is closed. Raises OSError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
