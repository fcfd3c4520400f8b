"""Limits the memory that the C library keeps after a load, and gives it back to the system.

glibc keeps an arena for each thread that allocates (up to 8 for each core), and an arena keeps freed memory. After some
long prompts and heavy grammars this was more than 2 GB. A few arenas share their free memory, and trimming gives it
back.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from twostroke.system.starting import begun

ARENAS = 2

QUIET_S = 1.0
"""Seconds from the end of heavy work to the trimming, so that a burst is trimmed once."""

_M_ARENA_MAX = -8


def keep_little() -> bool:
    """Limits the number of malloc arenas of the C library to ARENAS. Call it once, before threads allocate. Returns
    False where this is not possible."""
    library = _glibc()
    if library is None:
        return False
    return bool(library.mallopt(_M_ARENA_MAX, ARENAS))


def trim() -> bool:
    """Gives all free memory back to the system and releases the GIL meanwhile. Returns False where the C library cannot
    do it."""
    library = _glibc()
    return library is not None and bool(library.malloc_trim(0))


class Trimmer:
    """Trims the heap a while after heavy work has ended. It has one thread, which starts with the first such work."""

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._worked = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.trims = 0

    def heavy_work_ended(self) -> None:
        """Asks for a trim. It returns at once, and any thread may call it."""
        self._worked.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="twostroke-trim", daemon=True)
                begun(self._thread)  # where the system begins no more threads, the heap stays as it is

    def _run(self) -> None:
        pause = threading.Event()  # never set
        while True:
            self._worked.wait()
            pause.wait(self._quiet_s)
            self._worked.clear()
            trim()
            self.trims += 1


def _glibc() -> Any:
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
    except (OSError, TypeError):  # Windows cannot open CDLL(None)
        return None
