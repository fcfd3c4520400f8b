"""Defines what Ctrl-C does while no verb runs: it ends the process with code 130, without a traceback.

While a verb runs, Ctrl-C raises KeyboardInterrupt as usual, so that files and engines are closed. Before and after the
verb there is nothing to close, and an exception would end in a traceback from the middle of an import.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def end_quietly() -> None:
    """Makes SIGINT end the process without a traceback from now on, unless the parent process asked that SIGINT be
    ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


@contextmanager
def interruptible() -> Iterator[None]:
    """Makes Ctrl-C raise KeyboardInterrupt inside the block, and end the process quietly after it. Outside of programs
    that have called `end_quietly`, the block runs unchanged."""
    if signal.getsignal(signal.SIGINT) is not _end:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)


def finish_undisturbed() -> None:
    """Ignores signals from now on: the remaining work is short, and must not be cut."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
