"""The native exchange between ranks: through memory that they share, or through a connection between each two ranks."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Sequence

import numpy as np

from twostroke.backends.cpu.library import load_library
from twostroke.types.errors import BackendError
from twostroke.types.recorded.exchange_spent import ExchangeSpent

LINE_BYTES = 64
PIECE_BYTES = 4 << 20
"""The most bytes that a rank gives to the others at a time, unless one row has more."""


class Exchange:
    """One rank's end of the exchange of partial results between the ranks of a model. Once joined to a `CpuOps`, it
    must outlive that object.

    level: the level of the library whose ops use it. limit_s: the longest wait for another rank, in seconds.
    """

    def __init__(self, level: str, handle: int | None, keeps: object) -> None:
        if not handle:
            raise BackendError(
                "The exchange between ranks could not be made.", why="A size does not fit, or no memory is left."
            )
        self._library, self._keeps = load_library(level), keeps
        self.handle: int | None = handle
        self._ending = threading.Lock()

    @classmethod
    def in_memory(cls, level: str, descriptor: int, rank: int, ranks: int, width: int, limit_s: float) -> Exchange:
        """Makes an exchange through shared memory: a memory file of `memory_bytes` that all ranks have open. width: the
        columns of the widest value that is exchanged."""
        library = load_library(level)
        piece = piece_bytes(width)
        memory = mmap.mmap(descriptor, memory_bytes(level, ranks, width))
        address = np.frombuffer(memory, np.uint8).ctypes.data
        return cls(level, library.ts_exchange_shared(address, rank, ranks, piece, int(limit_s * 1e9)), memory)

    @classmethod
    def over_sockets(
        cls, level: str, sockets: Sequence[int], rank: int, limit_s: float, keeps: object = None
    ) -> Exchange:
        """Makes an exchange over connections. sockets: for each rank the descriptor of the connection to it; the entry
        of this rank itself is not used. keeps: the object that holds the connections open."""
        numbers = np.array(sockets, np.int32)
        library = load_library(level)
        handle = library.ts_exchange_sockets(numbers.ctypes.data, rank, len(numbers), int(limit_s * 1e9))
        return cls(level, handle, keeps)

    def begin(self, number: int) -> None:
        """Begins a pass of the program with this number. Ranks that are in different passes must not exchange values.
        """
        self._library.ts_exchange_begin(self.handle, number)

    def spent(self) -> ExchangeSpent:
        """Returns the calls, bytes and seconds of all passes so far. It must be called between passes."""
        figures = np.zeros(4, np.int64)
        self._library.ts_exchange_spent(self.handle, figures.ctypes.data)
        calls, sent_bytes, ns, waited_ns = figures.tolist()
        return ExchangeSpent(calls, sent_bytes, 1e-9 * ns, 1e-9 * waited_ns)

    def end(self) -> None:
        """Ends every wait, in this rank and in the others. Every later call is refused. Any thread may call it."""
        with self._ending:
            if self.handle:
                self._library.ts_exchange_end(self.handle)

    def close(self) -> None:
        """Frees the native memory of this rank's end. It must be called after the ops that use it are closed. Closing
        twice is harmless."""
        # Waits for an `end` that another thread has begun. After a destroy, that `end` would read freed memory and end
        # any open socket.
        with self._ending:
            handle, self.handle = self.handle, None
            if handle:
                self._library.ts_exchange_destroy(handle)


def piece_bytes(width: int) -> int:
    """Returns the most bytes that a rank gives to the others at a time: whole rows. width: the floats of the widest
    row."""
    row = -(-4 * width // LINE_BYTES) * LINE_BYTES
    return max(row, PIECE_BYTES // row * row)


def memory_bytes(level: str, ranks: int, width: int) -> int:
    """Returns the bytes of the memory that `ranks` ranks share. Pages that were never written take no memory."""
    return int(load_library(level).ts_exchange_bytes(ranks, piece_bytes(width)))
