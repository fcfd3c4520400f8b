"""Moves mapped weights into huge pages in the background after the start, while the engine already answers.

A file mapped in pages of 4 KiB is read at two thirds of the machine's bandwidth where page tables are nested (measured:
21 of 32 GB/s). Copying at the start would delay the first token by most of a second, so it is done after the start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from twostroke.ops.operands import U8Array
from twostroke.system.starting import begun
from twostroke.weights.packed.polite import give_way

DELAY_S = 0.5
"""The seconds before weights are copied into huge pages. The first answer of a one-shot command should not share memory
and cores with the copying."""

CHUNK_BYTES = 16 << 20
LEAST_BYTES = 64 << 20
"""The least size of mapped weights that are copied into huge pages. Smaller models are read from caches."""


class Settler:
    """Copies mapped weights into huge pages, in a thread of its own. `mapped` keeps its address; only the physical
    pages change.

    move(address, num_bytes): copies a part into huge pages. It returns False where it could not; the rest is then not
    copied either. page_bytes: the size of a huge page.
    """

    def __init__(self, mapped: U8Array, move: Callable[[int, int], bool], page_bytes: int) -> None:
        self._mapped = mapped  # kept alive for the thread
        self._move = move
        begin = int(mapped.ctypes.data)
        self._first = -(-begin // page_bytes) * page_bytes
        self._last = (begin + mapped.nbytes) // page_bytes * page_bytes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="twostroke-settle", daemon=True)
        self.moved_bytes = 0

    def start(self) -> None:
        """Begins to copy the weights into huge pages, after DELAY_S. Does nothing for small models, and where the
        system begins no more threads."""
        if self._last - self._first >= LEAST_BYTES:
            begun(self._thread)

    def wait(self) -> None:
        """Waits until all weights are in huge pages; for measurements of the steady state."""
        if self._thread.is_alive():
            self._thread.join()

    def close(self) -> None:
        """Ends the thread that copies weights into huge pages. Weights that were copied stay there. Closing twice is
        harmless."""
        self._stop.set()
        self.wait()

    def _run(self) -> None:
        if self._stop.wait(DELAY_S):
            return
        give_way()
        for address in range(self._first, self._last, CHUNK_BYTES):
            num_bytes = min(CHUNK_BYTES, self._last - address)
            if self._stop.is_set() or not self._move(address, num_bytes):
                return
            self.moved_bytes += num_bytes
