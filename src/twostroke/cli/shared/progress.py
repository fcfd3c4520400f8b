"""Progress of long work on standard error: a bar in a terminal, a line now and then elsewhere.

Knows: rich, byte counts.
Must not know: what is being loaded.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Progress = Callable[[int, int, str], None]
"""(done_bytes, total_bytes, what)"""

LONG_BYTES = 100_000_000
"""Loads shorter than this show no progress."""


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A callback that draws; nothing is drawn where it is never called."""
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


def _line_printer(title: str) -> Progress:
    """One line for every fifth of the way, where the way is long."""
    printed = [0]

    def update(done_bytes: int, total_bytes: int, what: str) -> None:
        fifths = 5 * done_bytes // max(1, total_bytes)
        if fifths > printed[0] and total_bytes >= LONG_BYTES:
            printed[0] = fifths
            print(f"{title}: {done_bytes / 1e6:,.0f} of {total_bytes / 1e6:,.0f} MB", file=sys.stderr, flush=True)

    return update
