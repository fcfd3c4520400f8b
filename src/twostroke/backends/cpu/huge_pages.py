"""Moves mapped weights into huge pages, and makes the system provide memory for addresses before it is needed."""

from __future__ import annotations

from twostroke.backends.cpu.library import lowest_library

HUGE_PAGE_BYTES = 2 << 20


def settle(address: int, num_bytes: int) -> bool:
    """Moves bytes to huge pages in place. Both arguments are multiples of HUGE_PAGE_BYTES. Returns False where nothing
    changed."""
    return int(lowest_library().ts_settle(address, num_bytes)) == 0


def populate(address: int, num_bytes: int) -> bool:
    """Makes the system back these bytes with memory now, except pages that lie in the range only in part. None of the
    bytes changes. Returns False where the system cannot."""
    return int(lowest_library().ts_populate(address, num_bytes)) == 0
