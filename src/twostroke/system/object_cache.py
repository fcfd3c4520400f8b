"""A folder of compiled files that all builds of one user share. It needs only the standard library: the kernels are
built before the package is installed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from twostroke.system import here

MOST_CACHE_BYTES = 256 << 20
IN_USE_S = 3600.0
"""The seconds since its last use in which a file of the cache is never removed: another build may link it."""


class ObjectCache:
    """Made files in one folder, each named by a hash of everything that it was made from.

    Several builds may use one folder at once: a file appears complete or not at all, and the second build that needs it
    waits for the first.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def get(self, suffix: str, inputs: Iterable[str | bytes], make: Callable[[Path], None]) -> Path:
        """Returns the file made from `inputs`. Where it is not kept yet, `make` writes it to a given path."""
        digest = hashlib.sha256()
        for part in inputs:
            content = part.encode() if isinstance(part, str) else part
            digest.update(len(content).to_bytes(8, "little") + content)
        kept = self.folder / f"{digest.hexdigest()}{suffix}"
        if not self._is_kept(kept):
            with self._alone(kept):
                if not self._is_kept(kept):
                    self._make(kept, make)
        return kept

    def _is_kept(self, kept: Path) -> bool:
        """Returns whether the file exists. If so, it counts as used now."""
        try:
            os.utime(kept)
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def _alone(self, kept: Path) -> Iterator[None]:
        """Keeps other builds from making the same file meanwhile. The lock ends with the process that has it."""
        with (self.folder / f"{kept.name}.lock").open("w") as lock:
            here.lock(lock.fileno())
            yield

    def _make(self, kept: Path, make: Callable[[Path], None]) -> None:
        partial = self.folder / f"partial-{os.getpid()}-{threading.get_ident()}{kept.suffix}"
        try:
            make(partial)
            partial.replace(kept)
        finally:
            partial.unlink(missing_ok=True)

    def trim(self, most_bytes: int = MOST_CACHE_BYTES) -> None:
        """Removes the files that were not used for the longest time, until at most `most_bytes` are left."""
        found = []
        for path in self.folder.iterdir():
            try:
                found.append((path.stat().st_mtime, path.stat().st_size, path))
            except FileNotFoundError:  # another build has removed the file
                continue
        total = sum(size for _, size, _ in found)
        for used_at, size, path in sorted(found):
            if total <= most_bytes or used_at > time.time() - IN_USE_S:
                return
            path.unlink(missing_ok=True)
            total -= size
