"""Starts child processes and threads, also where a sandbox refuses some of the calls for it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from twostroke.system import here

Started = TypeVar("Started")
NO_THREAD = "The system allows this user or container no more threads (ulimit -u, pids.max)."
MORE_THREADS = "Raise the limit, or ask for fewer --threads."
_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS)


def apart(start: Callable[..., Started]) -> Started:
    """Calls `start` with the arguments of Popen that separate a child from the terminal, so that Ctrl-C reaches only
    the parent. Where a sandbox refuses these arguments, calls it again with less strict ones. Returns the result of
    `start`. Raises OSError."""
    options = here.APART[0]
    while True:
        try:
            return start(**options)
        except OSError as error:
            options = _less_strict(options, error)


async def apart_async(start: Callable[..., Awaitable[Started]]) -> Started:
    """Awaits `start`, such as asyncio.create_subprocess_exec, with the same arguments as `apart`. Returns its result.
    Raises OSError."""
    options = here.APART[0]
    while True:
        try:
            return await start(**options)
        except OSError as error:
            options = _less_strict(options, error)


def _less_strict(options: dict[str, Any], error: OSError) -> dict[str, Any]:
    """Returns the arguments to try after `options`. Raises `error` where there are none, or where no sandbox refused
    `options`."""
    later = here.APART[here.APART.index(options) + 1 :]
    if not later or error.errno not in _REFUSED:
        raise error
    return later[0]


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
