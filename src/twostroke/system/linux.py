"""What Linux does in its own way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator


def allowed_cpus() -> frozenset[int] | None:
    """Numbers of the CPUs that the calling thread may run on; None where the system does not tell."""
    return frozenset(os.sched_getaffinity(0))


def performance_cores() -> int | None:
    """How many quick cores there are, where that is all that the system tells; None elsewhere."""
    return None


def keep_thread_on(cpus: Iterable[int]) -> None:
    """The calling thread, and all that it begins later, run on these CPUs alone. Where that cannot be, on any."""
    with contextlib.suppress(OSError, ValueError):
        os.sched_setaffinity(0, cpus)


@contextlib.contextmanager
def beginning_on(cpus: Iterable[int]) -> Iterator[None]:
    """Threads and processes that begin inside run on these CPUs alone; with none given, on those of the caller."""
    chosen = frozenset(cpus)
    if not chosen:
        yield
        return
    before = os.sched_getaffinity(0)
    keep_thread_on(chosen)
    try:
        yield
    finally:
        keep_thread_on(before)
