"""Shows the progress of long work on standard error: a bar in a terminal, occasional lines elsewhere."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator

Progress = Callable[[int, int, str], None]
"""A function of (done_bytes, total_bytes, what)."""

LONG_BYTES = 100_000_000
"""Loads of fewer bytes print no lines of progress."""

LINES_EVERY_S = 0.2
LINE_EVERY_S = 10.0
"""The longest time in seconds without a line of progress, so that a slow disk or network does not look like a process
that hangs."""


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Yields a callback that draws a bar. Nothing is drawn where it is never called."""
    if not sys.stderr.isatty():
        yield _line_printer(title)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, visible=False)

        def update(done_bytes: int, total_bytes: int, what: str) -> None:
            bar.update(task, description=f"{title} {what[:40]}", completed=done_bytes, total=total_bytes, visible=True)

        yield update


@contextlib.contextmanager
def progress_lines(title: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Progress]:
    """Yields a callback that writes lines of JSON for a program: at most one in LINES_EVERY_S seconds, and the last
    one."""
    at_s = -math.inf

    def update(done_bytes: int, total_bytes: int, what: str) -> None:
        nonlocal at_s
        if clock() - at_s >= LINES_EVERY_S or done_bytes >= total_bytes:
            at_s = clock()
            told = {"stage": title, "done": done_bytes, "total": total_bytes, "what": what}
            print(json.dumps(told), file=sys.stderr, flush=True)

    yield update


def _line_printer(title: str, clock: Callable[[], float] = time.monotonic) -> Progress:
    """Returns a callback that prints lines for long loads: one for every fifth of the load, and one wherever
    LINE_EVERY_S seconds have passed without a line."""
    printed, at_s = 0, clock()

    def update(done_bytes: int, total_bytes: int, what: str) -> None:
        nonlocal printed, at_s
        fifths = 5 * done_bytes // max(1, total_bytes)
        if total_bytes >= LONG_BYTES and (fifths > printed or clock() - at_s >= LINE_EVERY_S):
            printed, at_s = fifths, clock()
            done = f"{done_bytes / 1e6:,.0f} of {total_bytes / 1e6:,.0f} MB"
            print(f"{title}: {done} ({what[:60]})", file=sys.stderr, flush=True)

    return update
