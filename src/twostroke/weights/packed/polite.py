"""A background thread with a lower priority than those that compute."""

from __future__ import annotations

import contextlib
import os
import threading

NICENESS = 10


def give_way(niceness: int = NICENESS) -> None:
    """Lowers the priority of the calling thread, where the system allows it."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
