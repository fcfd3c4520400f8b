"""Makes room for a new file of packed weights: the least recently used files are removed first.

A file that a process maps stays (in_use.py). So that the cache does not fill a disk bit by bit, its size also has a
bound. The usual bound is half of the room that the disk would have free without the cache. So the cache leaves to other
programs as much as it takes, on a disk of any size, and shrinks when they need more. The bound only decides which files
are removed. A new file that the disk can hold is kept in any case, because packing at each start costs more. A bound
that a user sets holds for the new file too.

The bytes that another process still has to write of a file without a name are not free either. Where the disk cannot
hold both files, the later process does not keep its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from twostroke.weights.packed.cache_folder import CachedFile, cached_files
from twostroke.weights.packed.file import unwritten_bytes
from twostroke.weights.packed.in_use import alone

KEPT_FREE_BYTES = 256 << 20
"""The bytes that are left free on the disk of the cache, for other programs."""

Report = Callable[[str], None]


class KeptFolder(Struct, frozen=True):
    """The folder where packed files are kept. limit_bytes: the most bytes that all of them may take; None for the usual
    bound. memory_bytes: the most bytes of weights that are packed in memory. Larger weights are packed straight into
    their file; None where memory can hold all weights."""

    path: Path
    limit_bytes: int | None = None
    memory_bytes: int | None = None

    def holds(self, num_bytes: int) -> bool:
        """Returns whether main memory can hold `num_bytes` of packed weights before they are written to their file."""
        return self.memory_bytes is None or num_bytes <= self.memory_bytes

    def make_room(self, new: Path, num_bytes: int, report: Report) -> None:
        """Makes room for a file of `num_bytes` under the path `new`. report: called for each file that is removed.

        Raises OSError where there is too little room even without the files that are not in use; then these files stay.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        files = cached_files(self.path)
        lacking = self._lacking(sum(file.num_bytes for file in files if file.path != new), num_bytes)
        left = sorted(files, key=lambda file: (file.path != new, file.used_s))
        freed_bytes = 0
        while lacking.wished_bytes > freed_bytes:
            with ExitStack() as held:
                chosen = _unused(left, lacking.wished_bytes - freed_bytes, held)
                found_bytes = sum(file.num_bytes for file in chosen)
                if found_bytes < lacking.needed_bytes - freed_bytes:
                    raise OSError(f"{lacking.why}, and {found_bytes / 1e9:.2f} GB are in files that are not in use")
                if not chosen:
                    return
                freed_bytes += sum(_remove(file, self.path, report) for file in chosen)
            left = [file for file in left if file not in chosen]

    def _lacking(self, kept_bytes: int, num_bytes: int) -> _Lacking:
        """Returns the bytes that are missing for a file of `num_bytes`. kept_bytes: the bytes of the other files."""
        free_bytes = shutil.disk_usage(self.path).free - unwritten_bytes(self.path)
        for_disk = num_bytes + KEPT_FREE_BYTES - free_bytes
        why = (
            f"they need {num_bytes / 1e9:.2f} GB and {KEPT_FREE_BYTES / 1e9:.2f} GB to spare,"
            f" {free_bytes / 1e9:.2f} GB are free"
        )
        if self.limit_bytes is None:
            above_usual = kept_bytes + num_bytes - (free_bytes + kept_bytes) // 2
            return _Lacking(for_disk, max(for_disk, above_usual), why)
        above_limit = kept_bytes + num_bytes - self.limit_bytes
        if above_limit > for_disk:
            why = (
                f"they need {num_bytes / 1e9:.2f} GB, others take {kept_bytes / 1e9:.2f} GB,"
                f" --cache-limit allows {self.limit_bytes / 1e9:.2f} GB"
            )
        lacking_bytes = max(for_disk, above_limit)
        return _Lacking(lacking_bytes, lacking_bytes, why)


class _Lacking(NamedTuple):
    """The room that a new file lacks in the folder. needed_bytes: the bytes that must be freed before the file can be
    kept. wished_bytes: the bytes to free where enough files are unused, so that the usual bound is kept too. why: the
    reason for the lack, in words."""

    needed_bytes: int
    wished_bytes: int
    why: str


def _unused(files: Iterable[CachedFile], num_bytes: int, held: ExitStack) -> list[CachedFile]:
    """Returns the first files that no process uses, with `num_bytes` in sum if there are enough; no process can use
    them while `held` is open."""
    chosen: list[CachedFile] = []
    for file in files:
        if num_bytes <= 0:
            break
        with contextlib.suppress(OSError):
            if held.enter_context(alone(file.path)):
                chosen.append(file)
                num_bytes -= file.num_bytes
    return chosen


def _remove(file: CachedFile, folder: Path, report: Report) -> int:
    """Removes a file. Returns the number of bytes that were freed, 0 where the file cannot be removed."""
    try:
        os.unlink(file.path)
    except OSError:
        return 0
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(file.used_s))
    report(
        f"To make room in {folder}, the packed weights of {file.origin or file.name} were removed:"
        f" {file.num_bytes / 1e9:.2f} GB, last used {used}. Their next start packs them again."
    )
    return file.num_bytes
