"""Finds the parts of Twostroke's own caches that are no longer needed.

- Packed files whose model is gone, that this version cannot use, or that no start used for a time.
- Folders of settings that were made of GGUF files that are gone.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from twostroke.types.errors import ConfigError, CorruptModel
from twostroke.weights.gguf.unfold import NAME_FILE, UNFOLDED
from twostroke.weights.json_file import read_object
from twostroke.weights.packed.cache_choice import PACKED
from twostroke.weights.packed.cache_folder import CachedFile, CacheState, listed_files
from twostroke.weights.packed.file import DISK_UNIT_BYTES
from twostroke.weights.packed.header import ORIGIN_CHARACTERS
from twostroke.weights.packed.in_use import alone

GONE, UNUSABLE, UNUSED, ABANDONED, BEGUN = (
    "its model is gone",
    "this version cannot use it",
    "no start used it for {days:,.0f} days",
    "a file that was never finished",
    "a download that was not finished for {days:,.0f} days",
)
DAY_S = 86400.0
_IN_HUB = "/models--"


class Waste(Struct, frozen=True):
    """One file or folder that can be removed. of: the model from which it was made, "" where that is not known. files:
    if there are any, only these files of the folder are removed."""

    path: Path
    num_bytes: int
    why: str
    of: str = ""
    files: tuple[Path, ...] = ()


def packed_waste(cache: Path, hub: Path, now_s: float, older_s: float) -> list[Waste]:
    """Returns packed files to remove, which no process maps: their model is gone, this version cannot use them, or no
    start mapped or wrote them for older_s seconds. hub: the hub's cache."""
    found = []
    for file in listed_files(cache / PACKED):
        why = _why(file, hub, now_s, older_s)
        if why and file.in_use is False:
            found.append(Waste(file.path, file.num_bytes, why, file.origin))
    for path in sorted((cache / PACKED).glob("*.partial")):
        with contextlib.suppress(OSError):
            if _is_free(path):
                found.append(Waste(path, DISK_UNIT_BYTES * path.stat().st_blocks, ABANDONED))
    return found


def unfolded_waste(cache: Path, hub: Path) -> list[Waste]:
    """Returns the folders that were made from GGUF files (config.json, tokenizer.json and others) and whose GGUF file
    is gone. cache: Twostroke's cache, which holds these folders. hub: the hub's cache."""
    found = []
    with contextlib.suppress(OSError):
        for folder in sorted(path for path in (cache / UNFOLDED).iterdir() if (path / NAME_FILE).is_file()):
            with contextlib.suppress(OSError, CorruptModel):
                named = read_object(folder / NAME_FILE).get("file")
                if isinstance(named, str) and _is_gone(named, hub):
                    found.append(Waste(folder, _bytes_below(folder), GONE, named))
    return found


def partial_waste(hub: Path, now_s: float, older_s: float, endings: Sequence[str]) -> list[Waste]:
    """Returns partly downloaded files in the hub's cache that have not changed for `older_s` seconds and that no
    process is writing. endings: the ends of the names of such files."""
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(hub.glob("models--*/blobs/*")):
            if not path.name.endswith(tuple(endings)) or path.is_symlink():
                continue
            with contextlib.suppress(OSError):
                status = path.stat()
                idle_s = now_s - status.st_mtime
                if idle_s >= older_s and _is_free(path):
                    repo = path.parents[1].name.removeprefix("models--").replace("--", "/", 1)
                    found.append(Waste(path, status.st_size, BEGUN.format(days=idle_s / DAY_S), repo))
    return found


def remove_waste(waste: Waste) -> int:
    """Deletes the file or folder, unless a process has begun to use it. Returns the number of bytes that were freed.
    Raises ConfigError where deleting is not allowed."""
    try:
        if waste.files:
            return sum(_removed(path) for path in waste.files)
        if waste.path.is_dir():
            shutil.rmtree(waste.path)
            return waste.num_bytes
        with alone(waste.path) as unused:
            if not unused:
                return 0
            waste.path.unlink()
            return waste.num_bytes
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise ConfigError(
            f"{waste.path} cannot be deleted.",
            why=f"{error.strerror}.",
            fix="Check who owns the folder; what is left can be removed by the same command.",
        ) from None


def _removed(path: Path) -> int:
    """Deletes a file. Returns its bytes, 0 where another process deleted it first."""
    try:
        num_bytes = path.stat().st_size
        path.unlink()
    except FileNotFoundError:
        return 0
    return num_bytes


def _why(file: CachedFile, hub: Path, now_s: float, older_s: float) -> str:
    """Returns the reason why a packed file can be removed; "" where it stays."""
    if file.state is CacheState.UNUSABLE:
        return f"{UNUSABLE}: {file.why}" if file.why else UNUSABLE
    if _is_gone(file.origin, hub):
        return GONE
    idle_s = now_s - file.used_s
    return UNUSED.format(days=idle_s / DAY_S) if idle_s >= older_s else ""


def _is_gone(origin: str, hub: Path) -> bool:
    """Returns whether the model's folder or file does not exist any more. Returns False where its disk is not
    connected, because nothing is known then."""
    path = _whole_path(origin, hub)
    if path is None:
        return False
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return _is_place_there(path, hub)
    except OSError:
        return False
    return False


def _whole_path(origin: str, hub: Path) -> Path | None:
    """Returns the path that a packed file's header names. The header keeps only the end of a long path, which is enough
    for a path in the hub's cache. Returns None where the path cannot be found."""
    if origin and len(origin) < ORIGIN_CHARACTERS:
        return Path(origin) if Path(origin).is_absolute() else None
    before, found, rest = origin.partition(_IN_HUB)
    return hub / (_IN_HUB[1:] + rest) if found and before and str(hub).endswith(before) else None


def _is_place_there(path: Path, hub: Path) -> bool:
    """Returns whether the disk on which the path lay is connected: the folder of a disk that is not connected is empty.
    """
    parent = next(parent for parent in path.parents if parent.exists())
    try:
        return parent == hub or any(parent.iterdir())
    except OSError:
        return False


def _is_free(path: Path) -> bool:
    with contextlib.suppress(OSError), alone(path) as unused:
        return unused
    return False


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
