"""Pages of prompts in the cache folder, for the commands of the command line: how many there are, and which can be
removed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from twostroke.engine.disk.files import KV_FOLDER, SECRET, DiskFiles
from twostroke.engine.disk.index import FoundFile, leaving
from twostroke.weights.packed.cache_choice import PACKED
from twostroke.weights.packed.cache_folder import listed_files
from twostroke.weights.store.unused import DAY_S, Waste

UNUSED = "{files:,} files of prompts that no request read for {days:,.0f} days"
ALL = "{files:,} files of prompts"
OVER = "used longest ago, and all together take more than {keep:,.1f} MB"


class KeptPages(Struct, frozen=True):
    """The files in `folder` that keep pages of K and V of prompts for later processes. files: one entry for each file,
    sorted by name."""

    folder: Path
    files: tuple[FoundFile, ...]

    @property
    def num_bytes(self) -> int:
        """The size of all these files together, in bytes."""
        return sum(file.num_bytes for file in self.files)

    @property
    def used_s(self) -> float | None:
        """The Unix time, in seconds, when a page was last written or read; None where there are none."""
        return max((file.used_ns / 1e9 for file in self.files), default=None)


def kept_pages(cache: Path) -> KeptPages:
    """Returns the files in the cache folder that keep pages of K and V; none where the folder cannot be read."""
    folder, found = cache / KV_FOLDER, list[FoundFile]()
    with contextlib.suppress(OSError):
        found = [file for file in DiskFiles(folder).list() if file.name != SECRET]
    return KeptPages(folder, tuple(sorted(found, key=lambda file: file.name)))


def page_waste(cache: Path, now_s: float, older_s: float, *, everything: bool) -> list[Waste]:
    """Returns the pages that no request has read or written for `older_s` seconds, or all of them if `everything` is
    set."""
    kept = kept_pages(cache)
    idle = [file for file in kept.files if everything or now_s - file.used_ns / 1e9 >= older_s]
    why = ALL.format(files=len(idle)) if everything else UNUSED.format(files=len(idle), days=older_s / DAY_S)
    return [_waste(kept, idle, why)] if idle else []


def waste_over(cache: Path, keep_bytes: int, found: Sequence[Waste]) -> list[Waste]:
    """Returns packed weights and kept pages of K and V to remove, the least recently used first. If these and the
    `found` waste are removed, the packed weights and pages that remain take at most keep_bytes. Files that a process
    uses are never removed."""
    pages, gone = kept_pages(cache), {path for waste in found for path in (waste.path, *waste.files)}
    packed = {file.path: file for file in listed_files(cache / PACKED) if file.path not in gone}
    fixed = sum(file.num_bytes for file in packed.values() if file.in_use is not False)
    files = [file for file in pages.files if pages.folder / file.name not in gone]
    entries = {str(pages.folder / file.name): FoundFile("", file.num_bytes, file.used_ns) for file in files}
    entries |= {
        str(path): FoundFile("", file.num_bytes, int(file.used_s * 1e9))
        for path, file in packed.items()
        if file.in_use is False
    }
    listed = [FoundFile(name, entry.num_bytes, entry.used_ns) for name, entry in entries.items()]
    leaves = {file.name for file in leaving(listed, max(0, keep_bytes), fixed)}
    why = OVER.format(keep=keep_bytes / 1e6)
    over = [Waste(path, file.num_bytes, why, file.origin) for path, file in packed.items() if str(path) in leaves]
    old = [file for file in files if str(pages.folder / file.name) in leaves]
    return [*over, *([_waste(pages, old, f"{ALL.format(files=len(old))}, {why}")] if old else [])]


def _waste(kept: KeptPages, files: Sequence[FoundFile], why: str) -> Waste:
    paths = tuple(kept.folder / file.name for file in files)
    return Waste(kept.folder, sum(file.num_bytes for file in files), why, files=paths)
