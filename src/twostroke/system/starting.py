"""Starts child processes and threads, also where a sandbox refuses some of the calls for it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from twostroke.system import here

Started = TypeVar("Started")
NO_THREAD = "The system allows this user or container no more threads (ulimit -u, pids.max)."
MORE_THREADS = "Raise the limit, or ask for fewer --threads."
_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS)


def apart(start: Callable[..., Started]) -> Started:
    """Calls `start` with the arguments of Popen that separate a child from the terminal, so that Ctrl-C reaches only
    the parent. Where a sandbox refuses these arguments, calls it again with less strict ones. Returns the result of
    `start`. Raises OSError."""
    *better, last = here.APART
    for options in better:
        try:
            return start(**options)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
    return start(**last)


async def apart_async(start: Callable[..., Awaitable[Started]]) -> Started:
    """Awaits `start`, such as asyncio.create_subprocess_exec, and returns its result. Arguments of Popen separate the
    child from the terminal, so that Ctrl-C reaches only the parent. Where a sandbox refuses them, calls `start` again
    with less strict ones. Raises OSError."""
    *better, last = here.APART
    for options in better:
        try:
            return await start(**options)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
    return await start(**last)


def why_no_process(error: OSError) -> str:
    """Returns in words why the system started no process."""
    reason, place = error.strerror or str(error), error.filename
    if error.errno != errno.EAGAIN:
        return f"{place}: {reason}." if place else f"{reason}."
    return f"{reason}: the system allows this user or container no more processes (ulimit -u, pids.max)."


def begun(thread: threading.Thread) -> bool:
    """Starts a thread. Returns False where the system lets this process begin no more threads."""
    try:
        thread.start()
    except RuntimeError:  # Python's error for it has no class of its own
        if thread.ident is not None:
            raise
        return False
    return True
