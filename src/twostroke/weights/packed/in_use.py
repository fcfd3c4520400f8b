"""Tells which files of packed weights are in use, and when each was used last.

A process that maps a file holds a shared lock (flock) on it for as long as it maps it. The lock belongs to the open
file, of which Python's mapping keeps a descriptor of its own. So the lock ends with the mapping, also where the process
is killed. A process that removes a file takes an exclusive lock and holds it until the name is gone. A process that
wants to map the file meanwhile waits, and finds that the name is gone.

Removing a file never breaks a process that maps it, not even one without a lock: POSIX keeps the bytes of a mapping
after the last name is gone. But the bytes stay on the disk until the mapping ends, so nothing would be gained.

The last use is the modification time: the bytes never change.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from twostroke.system import here


def use(descriptor: int) -> bool:
    """Holds a shared lock on an open file until its last descriptor and mapping are gone. First waits for a process
    that is removing the file. Returns False where the file has been removed, so that it has no name any more."""
    with contextlib.suppress(OSError):  # a file system without locks removes no files
        here.lock(descriptor, shared=True)
    return os.fstat(descriptor).st_nlink > 0


@contextlib.contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Yields whether no process uses the file; no process can begin to use it before the block ends. Raises OSError
    where that cannot be known: no such file, no permission, a file system without locks."""
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
    """Returns whether a process maps the file; None where that cannot be known."""
    try:
        with alone(path) as unused:
            return not unused
    except OSError:
        return None


def mark_used(path: Path) -> None:
    """Records this moment as the time of the file's last use. Does nothing where the process may not change the file's
    times."""
    with contextlib.suppress(OSError):
        os.utime(path)
