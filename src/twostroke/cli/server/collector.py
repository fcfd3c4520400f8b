"""Objects that live as long as the process are left out of Python's garbage collection.

A full search walks every object that is alive: imported modules, tables of tokens, and does so between two tokens of a
stream. With the embedded model it took up to 88 ms; frozen objects are not walked.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting_heap() -> Iterator[None]:
    """Keep what is loaded now out of garbage collection until the end. For the owner of the process, after loading."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
