"""Explains failures of the system that any verb may meet: no more threads, processes, files or room."""

from __future__ import annotations

import errno

from twostroke.system.starting import MORE_THREADS, NO_THREAD
from twostroke.types.errors import BackendError, ConfigError, TwostrokeError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
_MANY_FILES = (errno.EMFILE, errno.ENFILE)


def refusal_of(error: Exception) -> TwostrokeError | None:
    """Returns the error that explains why the operating system refused a thread, a process, a file or room on a disk.
    Returns None for an exception of another kind."""
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return BackendError("The system begins no more threads.", why=NO_THREAD, fix=MORE_THREADS)
    if not isinstance(error, OSError):
        return None
    reason, place = error.strerror or str(error), str(error.filename or "")
    if error.errno in _MANY_FILES:
        why = "The limit on open files and connections (ulimit -n) is reached."
        return BackendError("No more files can be opened.", why=why, fix="Raise the limit: ulimit -n 1024.")
    if error.errno == errno.EAGAIN:
        why = "The system allows this user or container no more processes (ulimit -u, pids.max)."
        return BackendError("No more processes can be started.", why=why, fix="Raise the limit.")
    if error.errno in _FULL:
        what = f"There is no room to write {place}." if place else "There is no room to write a file."
        return ConfigError(what, why=f"{reason}.", fix="Free some room, or set XDG_CACHE_HOME and TMPDIR elsewhere.")
    if "temporary directory" in reason:
        fix = "Set TMPDIR to a folder that this user may write."
        return ConfigError("There is no folder for temporary files.", why=f"{reason}.", fix=fix)
    if error.errno in _CLOSED and place:
        fix = "Let this user read or write it, or set XDG_CACHE_HOME and TMPDIR to folders that it may write."
        return ConfigError(f"The system refuses {place}.", why=f"{reason}.", fix=fix)
    return None
