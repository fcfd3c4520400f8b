"""Defines what Ctrl-C does while no verb runs: it ends the process with code 130, without a traceback.

While a verb runs, Ctrl-C raises KeyboardInterrupt as usual, so that files and engines are closed. Before and after the
verb there is nothing to close, and an exception would end in a traceback from the middle of an import.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
AGAIN_S = 0.005
"""The seconds after which a Ctrl-C that Python swallowed is raised again."""


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
        with _nothing_swallowed():
            yield
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)


@contextmanager
def _nothing_swallowed() -> Iterator[None]:
    """Raises a KeyboardInterrupt again when Python swallowed it. Python does so, with a traceback, when Ctrl-C comes
    while a destructor or the callback of a weak reference runs."""
    before = sys.unraisablehook

    def hook(found: sys.UnraisableHookArgs) -> None:
        if not issubclass(found.exc_type, KeyboardInterrupt):
            before(found)
            return
        # A signal that is raised here would be handled inside this function, and be swallowed too.
        later = threading.Timer(AGAIN_S, signal.raise_signal, (signal.SIGINT,))
        later.daemon = True
        later.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def finish_undisturbed() -> None:
    """Ignores signals from now on: the remaining work is short, and must not be cut."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
