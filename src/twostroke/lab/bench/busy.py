"""Programs that use a core and never rest, as long as a measurement lasts: what a laptop, a virtual machine or a
container has next to an engine.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOOP = "while True: pass"
BEGIN_S = 0.2
"""Seconds until the loops run and the system has found cores for them."""


@contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Starts this many loops. Each is a process in a session of its own, like a program of another user."""
    command = [sys.executable, "-S", "-E", "-c", LOOP]
    programs = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        if programs:
            time.sleep(BEGIN_S)
        yield
    finally:
        for program in programs:
            program.kill()
        for program in programs:
            program.wait()
