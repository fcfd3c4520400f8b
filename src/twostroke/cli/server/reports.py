"""Reports from a replica to the process that started it: its progress of loading, and the reason for its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator

import msgspec

from twostroke.distributed.cluster.model_process import ProcessReport
from twostroke.types.errors import TwostrokeError

EVERY_S = 0.1
Progress = Callable[[int, int, str], None]


def report_listening(descriptor: int | None) -> None:
    """Reports to the parent process that this replica listens, so that fronts may call it. descriptor: the pipe for
    reports; None without one."""
    if descriptor is not None:
        _write(descriptor, ProcessReport(listens=True))


@contextlib.contextmanager
def reports(descriptor: int | None, shown: Progress) -> Iterator[Progress]:
    """Yields a progress callback. While the block runs, progress and the text of an error that it raises also go to the
    pipe `descriptor`, as lines of JSON.

    When the parent process at the other end of the pipe has ended, this process ends as by SIGTERM. Without a
    descriptor, yields `shown`.
    """
    if descriptor is None:
        yield shown
        return
    threading.Thread(target=_end_with_parent, args=(descriptor,), name="parent", daemon=True).start()
    next_s = 0.0

    def told(done: int, total: int, what: str) -> None:
        nonlocal next_s
        shown(done, total, what)
        if (now := time.monotonic()) >= next_s or done == total:
            next_s = now + EVERY_S
            _write(descriptor, ProcessReport(done, total))

    try:
        yield told
    except MemoryError as error:
        _write(descriptor, ProcessReport(error=f"The system refused memory. {error}".strip()))
        raise
    except TwostrokeError as error:
        _write(descriptor, ProcessReport(error=str(error)))
        raise


def _write(descriptor: int, report: ProcessReport) -> None:
    with contextlib.suppress(OSError):  # no process may read the reports any more: see _end_with_parent
        os.write(descriptor, msgspec.json.encode(report) + b"\n")


def _end_with_parent(descriptor: int) -> None:
    """Waits until the reading end is closed, because the process that started this one has ended. Then ends this
    process."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)
