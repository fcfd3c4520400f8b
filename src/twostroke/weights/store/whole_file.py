"""Small files that are written whole or not at all, by one process at a time."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from twostroke.system import here


def write_whole(path: Path, text: str) -> None:
    """Replaces the file: a reader sees the old text or the new one, also where this process is killed. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:  # also for Ctrl-C
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


@contextlib.contextmanager
def one_writer(path: Path) -> Iterator[None]:
    """Inside the block, no other process changes the file, so that two changes at once are both kept. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | here.file_flags(), 0o600)
    try:
        with contextlib.suppress(OSError):  # the file system may have no locks
            here.lock(descriptor)
        yield
    finally:
        os.close(descriptor)
