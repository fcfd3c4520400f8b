"""Makes the system provide memory for pages of the KV pool before a step needs them.

Pages that were never used have no memory yet. The first write to each 2 MiB of each layer waits until the system has
found and cleared some. On a virtual machine this delayed single steps of the embedded model by 30 ms, and all streams
with them. So a thread stays a little ahead of the pages in use. Pages that are never used still cost nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from twostroke.system.starting import begun
from twostroke.weights.packed.polite import give_way

AHEAD_BYTES = 32 << 20
"""The largest number of bytes, in all layers together, that the thread provides ahead of the pages in use. A server
spends this memory so that its steps take even times. The thread wakes up when half of these bytes are in use. It
provides memory ten times as fast as a fast prefill of a small model fills it (40 MB a second); large models fill
less."""

CHUNK_BYTES = 2 << 20
DELAY_S = 0.2
"""The delay, in seconds, before KvPrefault's thread provides memory for the first pages. The first answer of a
one-shot command should not share memory and cores with the thread."""


class KvPrefault:
    """Owns the thread that makes the system provide memory for KV pages (see the module). layers: one array for each
    layer, whose first axis is the pages.

    populate(address, num_bytes): makes the system provide memory. It returns False where the system cannot; then
    nothing more is tried. It changes no byte, so pages may be in use while it runs.
    """

    def __init__(self, layers: Sequence[NDArray[Any]], populate: Callable[[int, int], bool]) -> None:
        self._layers = layers  # kept alive for the thread
        self._populate = populate
        self._num_pages = len(layers[0]) if layers else 0
        page_bytes = sum(layer.nbytes for layer in layers) // self._num_pages if self._num_pages else 1
        self._ahead_pages = max(1, AHEAD_BYTES // page_bytes)
        self._used_pages = 0
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="twostroke-backing", daemon=True)
        self.backed_pages = 0

    def start(self) -> None:
        """Starts the thread, which begins after DELAY_S. Where the system begins no more threads, pages get their
        memory when they are used."""
        self._wake.set()
        begun(self._thread)

    def on_fresh_page(self, page_id: int) -> None:
        """Is called when a page is used for the first time. Pages are first used in the order of their ids, so all
        pages with lower ids are or were in use."""
        self._used_pages = page_id + 1
        if self.backed_pages - page_id < self._ahead_pages // 2 and self.backed_pages < self._num_pages:
            self._wake.set()

    def close(self) -> None:
        """Ends the thread. Closing twice is harmless."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        if self._stop.wait(DELAY_S):
            return
        give_way()
        while self.backed_pages < self._num_pages:
            self._wake.wait()
            self._wake.clear()
            if self._stop.is_set() or not self._back(min(self._num_pages, self._used_pages + self._ahead_pages)):
                return

    def _back(self, end_page: int) -> bool:
        """Provides memory for all layers' pages before `end_page`. It finishes a few pages in all layers before the
        next ones. Returns False where it was stopped."""
        first = self.backed_pages
        step = max(1, CHUNK_BYTES * self._num_pages // max(1, self._layers[0].nbytes))
        for page in range(first, end_page, step):
            last = min(end_page, page + step)
            for layer in self._layers:
                piece = layer[page:last]
                if self._stop.is_set() or not self._populate(piece.ctypes.data, piece.nbytes):
                    return False
            self.backed_pages = last
        return True
