"""Programs that use a core without a pause while a measurement lasts. They stand for the other programs that a laptop,
a virtual machine or a container runs next to an engine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOOP = "while True: pass"
BEGIN_S = 0.2
"""Seconds to wait until the loops run and the system has found cores for them."""


@contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Runs `count` endless loops while the context lasts. Each is a process in a session of its own, like a program of
    another user."""
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
