"""Drops files from the system's memory, so that the next read comes from the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable

from twostroke.system import here


def evict(paths: Iterable[str]) -> None:
    """Drops the clean, unmapped pages of the files, and of all files in the folders. Paths that do not exist are
    skipped."""
    for path in paths:
        if os.path.isdir(path):
            evict(os.path.join(path, name) for name in os.listdir(path))
        elif os.path.isfile(path):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                here.forget(descriptor)
            finally:
                os.close(descriptor)
