"""Moving mapped weights into huge pages.

Knows: ts_settle.
Must not know: files, models, threads.
"""

from __future__ import annotations

from twostroke.backends.cpu.library import load_library

HUGE_PAGE_BYTES = 2 << 20


def settle(address: int, num_bytes: int) -> bool:
    """Move bytes to huge pages in place; both arguments are multiples of HUGE_PAGE_BYTES. False: nothing changed."""
    return int(load_library("generic").ts_settle(address, num_bytes)) == 0
