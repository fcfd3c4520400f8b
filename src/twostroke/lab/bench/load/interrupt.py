"""Ctrl-C as a request to stop: the first one sets an event, a second one interrupts."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def stopped_by_interrupt(stop: asyncio.Event) -> Iterator[None]:
    """Inside, SIGINT sets `stop` once. Outside the main thread, and where loops have no signals, it does nothing."""
    loop = asyncio.get_running_loop()

    def stopping() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop.set()

    try:
        loop.add_signal_handler(signal.SIGINT, stopping)
    except (NotImplementedError, RuntimeError, ValueError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
