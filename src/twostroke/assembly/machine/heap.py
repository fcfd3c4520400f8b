"""Memory that the C library keeps after a load, and giving it back to the system.

glibc keeps an arena for each thread that allocates (up to 8 for each core), and an arena keeps what was freed. After
some long prompts and heavy grammars this was more than 2 GB. Few arenas share what is free, and trimming gives it back.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

ARENAS = 2

QUIET_S = 1.0
"""Seconds from the end of heavy work to the trimming, so that a burst is trimmed once."""

_M_ARENA_MAX = -8


def keep_little() -> bool:
    """Set the C library up, once, before threads allocate. False where it cannot be."""
    library = _glibc()
    if library is None:
        return False
    return bool(library.mallopt(_M_ARENA_MAX, ARENAS))


def trim() -> bool:
    """Give all free memory back to the system. False where the C library cannot. Releases the GIL."""
    library = _glibc()
    return library is not None and bool(library.malloc_trim(0))


class Trimmer:
    """Trims a while after heavy work has ended. One thread, started with the first such work."""

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._worked = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.trims = 0

    def heavy_work_ended(self) -> None:
        """Returns at once; any thread may call it."""
        self._worked.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="twostroke-trim", daemon=True)
                self._thread.start()

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
