"""One native library with one pool of threads and its scratch memory."""

from __future__ import annotations

import threading

from twostroke.backends.cpu.library import best_level, load_library
from twostroke.system import here
from twostroke.system.cpu_list import ANY, read_cpus
from twostroke.types.errors import BackendError

MAX_THREADS = 256


class NativeContext:
    """A native library with its threads. level: the level of the library; None takes the best level of this CPU. cpus:
    the hardware threads on which the pool's threads are kept.

    Raises BackendError where the threads cannot be started.
    """

    def __init__(self, level: str | None, num_threads: int, cpus: str = ANY) -> None:
        self.level = level or best_level()
        self.num_threads = num_threads
        self._cpus, self._placed = read_cpus(cpus), threading.main_thread().ident
        self._closing = threading.Lock()
        self._library = load_library(self.level)
        with here.beginning_on(self._cpus):
            self._context = self._library.ts_context_create(num_threads) if 1 <= num_threads <= MAX_THREADS else None
        if not self._context:
            raise BackendError(
                f"A pool of {num_threads} threads could not be made.",
                fix=f"Ask for 1 to {MAX_THREADS} threads (--threads).",
            )

    def _place_caller(self) -> None:
        """Keeps the calling thread on the hardware threads of the pool from now on. A program's main thread stays as it
        is: threads that the program begins later would be kept there too."""
        caller = threading.get_ident()
        if self._cpus and caller != self._placed:
            self._placed = caller
            if caller != threading.main_thread().ident:
                here.keep_thread_on(self._cpus)

    def close(self) -> None:
        """Ends the threads. The object cannot be used afterwards. Closing twice is harmless, also from two threads."""
        with self._closing:
            context, self._context = self._context, None
        if context:
            self._library.ts_context_destroy(context)

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self.close()
