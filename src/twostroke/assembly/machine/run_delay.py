"""Measures how long a thread was ready to run while the processors ran other programs, as Linux counts it.

The kernel keeps three numbers for each thread in /proc/thread-self/schedstat: time on a processor, time waiting for a
processor, and turns. Without such a file, the answer is 0.
"""

from __future__ import annotations

import os
import threading

from twostroke.system import here

SCHEDSTAT = "/proc/thread-self/schedstat"


class RunDelay:
    """Reads the waiting time of the thread that steps, which calls it at each step. A call is one read of a file that
    stays open and takes 1 to 2 microseconds."""

    def __init__(self, path: str = SCHEDSTAT) -> None:
        self._path = path
        self._thread: int | None = None
        self._file: int | None = None
        self._last_ns = 0

    def __call__(self) -> float:
        """Returns the seconds that this thread waited since its last call. Returns 0 at the first call, and where the
        system gives no number."""
        if self._thread != threading.get_ident():
            self._open()
            return 0.0
        last_ns, self._last_ns = self._last_ns, self._read_ns()
        return max(0, self._last_ns - last_ns) * 1e-9

    def close(self) -> None:
        """Closes the file; a later call opens it again."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._thread = None, None

    def __del__(self) -> None:
        self.close()

    def _open(self) -> None:
        self.close()
        self._thread = threading.get_ident()
        try:
            self._file = os.open(self._path, os.O_RDONLY | here.file_flags())
        except OSError:
            return
        self._last_ns = self._read_ns()

    def _read_ns(self) -> int:
        if self._file is None:
            return 0
        try:
            return int(here.read_at(self._file, 64, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return self._last_ns
