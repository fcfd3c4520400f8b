"""Which files of packed weights are in use, and when each was used last.

A process that maps a file holds a shared lock (flock) on it for as long as it maps it: the lock belongs to the open
file, of which Python's mapping keeps a descriptor of its own, so it ends with the mapping, also where the process is
killed. Who takes a file away asks for the lock alone and holds it until the name is gone. A process that maps the file
meanwhile waits, and finds that the name is gone.

Taking a file away never breaks a process that maps it, not even one without a lock: POSIX keeps the bytes of a mapping
after the last name is gone. They only stay on the disk until then, so nothing would be won.

The last use is the modification time: the bytes never change.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from twostroke.system import here


def use(descriptor: int) -> bool:
    """Hold a shared lock on an open file until its last descriptor and mapping are gone. False where the file has no
    name any more. Waits for a process that is taking it away."""
    with contextlib.suppress(OSError):  # a file system without locks: nothing is taken away there
        here.lock(descriptor, shared=True)
    return os.fstat(descriptor).st_nlink > 0


@contextlib.contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Whether no process uses the file; none can begin to before the block ends. Raises OSError where that cannot be
    known: no such file, no permission, a file system without locks."""
    descriptor = os.open(path, os.O_RDWR | here.file_flags(follow=False, wait=False))
    try:
        try:
            here.lock(descriptor, wait=False)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


def in_use(path: Path) -> bool | None:
    """Whether a process maps the file; None where that cannot be known."""
    try:
        with alone(path) as unused:
            return not unused
    except OSError:
        return None


def mark_used(path: Path) -> None:
    """Now is the time of the last use, where the file may be marked."""
    with contextlib.suppress(OSError):
        os.utime(path)
