"""How long a test waits, on any machine: a busy one fails no test.

A test that passes never waits so long. So a limit that is long costs nothing, and one that is short fails where other
programs have the cores. tests/laws/test_alike.py refuses short limits. A test that must know that a thread sleeps looks
at the thread and not at a clock.
"""

from __future__ import annotations

import time
from pathlib import Path

PATIENCE_S = 120.0
"""For what must happen."""
LOOKS, ASLEEP = 5000, 20
"""A thread that waits in a system call is found asleep in so many looks, of at most so many."""
REST_S = 0.002
"""Between two looks."""


def state_of(thread_id: int) -> str:
    """The state of a thread of this process, by its native id: S while it waits in a system call, R while it computes
    or waits for a core."""
    return Path(f"/proc/self/task/{thread_id}/stat").read_text().rpartition(")")[2].split()[0]


def is_seen_asleep(thread_id: int) -> bool:
    """Whether a thread waits in system calls. One that polls is never found asleep, however few cores there are: it
    computes, or it waits for a core."""
    found = 0
    for _ in range(LOOKS):
        found += state_of(thread_id) == "S"
        if found == ASLEEP:
            return True
        time.sleep(REST_S)
    return False
