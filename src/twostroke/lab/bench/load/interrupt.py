"""Lets Ctrl-C stop a run in order: the first one sets an event, a second one interrupts at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

from twostroke.system import here


@contextlib.contextmanager
def stopped_by_interrupt(stop: asyncio.Event) -> Iterator[None]:
    """Lets the first SIGINT inside the context set `stop`. Does nothing outside the main thread, or where event loops
    cannot handle signals."""

    def stopping(_kind: signal.Signals) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with contextlib.ExitStack() as taken:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            taken.enter_context(here.signals_to(stopping, (signal.SIGINT,)))
        yield
