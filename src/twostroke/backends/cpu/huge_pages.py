"""Moving mapped weights into huge pages; memory after addresses before it is needed."""

from __future__ import annotations

from twostroke.backends.cpu.library import lowest_library

HUGE_PAGE_BYTES = 2 << 20


def settle(address: int, num_bytes: int) -> bool:
    """Move bytes to huge pages in place; both arguments are multiples of HUGE_PAGE_BYTES. False: nothing changed."""
    return int(lowest_library().ts_settle(address, num_bytes)) == 0


def populate(address: int, num_bytes: int) -> bool:
    """Have the system back these bytes now, whole small pages only; none of them changes. False: it cannot."""
    return int(lowest_library().ts_populate(address, num_bytes)) == 0
