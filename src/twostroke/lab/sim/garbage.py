"""Collects garbage less often while a simulation runs. A simulation makes many small objects that stay, and almost no
cycles.

Python's collector walks all young objects after each 700 new ones: a tenth of a simulation's time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 500_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collects garbage less often inside the context. Only the owner of the process may use it, because the thresholds
    hold for the whole process."""
    before = gc.get_threshold()
    gc.set_threshold(max(YOUNG_OBJECTS, before[0]) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
