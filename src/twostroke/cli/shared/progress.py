"""Shows the progress of long work on standard error: a bar in a terminal, occasional lines elsewhere."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator

from msgspec import Struct

Progress = Callable[[int, int, str], None]
"""A function of (done, all, what). Both numbers are bytes, where no other unit is named."""

LONG_BYTES = 100_000_000
"""Loads of fewer bytes print no lines of progress."""

LINES_EVERY_S = 0.2
LINE_EVERY_S = 10.0
"""The longest time in seconds without a line of progress, so that a slow disk or network does not look like a process
that hangs."""


class Unit(Struct, frozen=True):
    """What a progress counts. least: shorter work prints no lines. size, name: a line gives the numbers divided by
    `size`, with this name. columns: the names of rich's columns that show them in a bar."""

    least: int
    size: int
    name: str
    columns: tuple[str, ...]


BYTES = Unit(LONG_BYTES, 1_000_000, " MB", ("DownloadColumn", "TransferSpeedColumn", "TimeRemainingColumn"))
STEPS = Unit(2, 1, "", ("MofNCompleteColumn", "TimeRemainingColumn"))


@contextlib.contextmanager
def progress_bar(title: str, unit: Unit | None = None) -> Iterator[Progress]:
    """Yields a callback that draws a bar. Nothing is drawn where it is never called. unit: None stands for BYTES."""
    unit = unit or BYTES
    if not sys.stderr.isatty():
        yield _line_printer(title, unit=unit)
        return
    from rich import progress as rich
    from rich.console import Console

    numbers = (getattr(rich, name)() for name in unit.columns)
    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), *numbers)
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, visible=False)

        def update(done: int, total: int, what: str) -> None:
            bar.update(task, description=f"{title} {what[:40]}", completed=done, total=total, visible=True)

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


def _line_printer(title: str, clock: Callable[[], float] = time.monotonic, unit: Unit = BYTES) -> Progress:
    """Returns a callback that prints lines for long work: one for every fifth of it, and one wherever LINE_EVERY_S
    seconds have passed without a line."""
    printed, at_s = 0, clock()

    def update(done: int, total: int, what: str) -> None:
        nonlocal printed, at_s
        fifths = 5 * done // max(1, total)
        if total >= unit.least and (fifths > printed or clock() - at_s >= LINE_EVERY_S):
            printed, at_s = fifths, clock()
            numbers = f"{done / unit.size:,.0f} of {total / unit.size:,.0f}{unit.name}"
            print(f"{title}: {numbers} ({what[:60]})", file=sys.stderr, flush=True)

    return update
