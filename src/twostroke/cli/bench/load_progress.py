"""Shows the progress of a load run on standard error: one line that is overwritten in a terminal, occasional lines
elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from twostroke.lab.bench.load.drive import Progress
    from twostroke.lab.bench.load.session import Watch

TICKS_A_LINE = 20


@contextlib.contextmanager
def load_progress(title: str = "") -> Iterator[Watch]:
    """Yields a function to call with each Progress, twice a second."""
    ticks = [0]

    def line(progress: Progress) -> None:
        ticks[0] += 1
        if ticks[0] % TICKS_A_LINE == 0:
            click.echo(title + progress_words(progress), err=True)

    def over(progress: Progress) -> None:
        click.echo(f"\r\x1b[K{title}{progress_words(progress)}", err=True, nl=False)

    if not sys.stderr.isatty():
        yield line
        return
    try:
        yield over
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)


def progress_words(progress: Progress) -> str:
    """Returns words such as "41 of 100 answered, 3 under way, 1 failed"."""
    failed = sum(not seen.whole for seen in progress.seen)
    answered = len(progress.seen) - failed
    tail = f", {failed} failed" if failed else ""
    return f"{answered} of {progress.total} answered, {progress.under_way} under way{tail}"
