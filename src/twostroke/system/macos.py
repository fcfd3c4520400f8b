"""What macOS does in its own way."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterable, Iterator


def allowed_cpus() -> frozenset[int] | None:
    """Numbers of the CPUs that the calling thread may run on; None where the system does not tell."""
    return None


def performance_cores() -> int | None:
    """How many quick cores there are, where that is all that the system tells; None elsewhere."""
    value, size = ctypes.c_int32(), ctypes.c_size_t(4)
    try:
        call = ctypes.CDLL(None).sysctlbyname
    except (AttributeError, OSError):
        return None
    refused = call(b"hw.perflevel0.physicalcpu", ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return value.value if refused == 0 and value.value > 0 else None


def keep_thread_on(cpus: Iterable[int]) -> None:
    """The calling thread, and all that it begins later, run on these CPUs alone. Where that cannot be, on any."""


@contextlib.contextmanager
def beginning_on(cpus: Iterable[int]) -> Iterator[None]:
    """Threads and processes that begin inside run on these CPUs alone; with none given, on those of the caller."""
    yield
