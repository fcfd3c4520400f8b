"""Keeps the measurement of this machine: one JSON file for a processor, a thread count and a build of the kernels.

    kept = read_calibration(machine.cache_folder, fingerprint(processor_name(), best_level(), threads))
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from twostroke.backends.cpu.library import library_path
from twostroke.cost.calibration import VERSION, Calibration
from twostroke.types.errors import ConfigError

FOLDER = "doctor"
MAX_BYTES = 1 << 20


def fingerprint(processor: str, level: str, threads: int) -> str:
    """Returns a text that changes with the processor, the threads, the kernels' build and the form of the file."""
    path = library_path(level)
    kernels = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    text = "\n".join((str(VERSION), processor, level, str(threads), kernels))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def read_calibration(cache_folder: Path, mark: str) -> Calibration | None:
    """Returns the measurement that was kept for this fingerprint. Returns None where there is none, or where it cannot
    be read; then the machine is measured again."""
    path = _path(cache_folder, mark)
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        found = Calibration.from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return None
    return found if found.fingerprint == mark else None


def check_place(cache_folder: Path) -> None:
    """Raises ConfigError where nothing could be kept. It is called before a machine is measured."""
    folder = cache_folder / FOLDER
    partial = folder / f"place.{os.getpid()}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.touch()
        partial.unlink()
    except OSError as error:
        raise _refused(folder, error) from None


def write_calibration(cache_folder: Path, calibration: Calibration) -> Path:
    """Keeps the measurement and returns its path. A half-written file never replaces a whole one. Raises ConfigError
    where the folder cannot be written."""
    path = _path(cache_folder, calibration.fingerprint)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(calibration.as_json(), indent=1))
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise _refused(path.parent, error) from None
    return path


def _refused(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"The measurement could not be kept in {folder}.",
        why=f"{error.strerror or error}.",
        fix="Make room there, or set XDG_CACHE_HOME to another folder.",
    )


def _path(cache_folder: Path, mark: str) -> Path:
    return cache_folder / FOLDER / f"{mark}.json"
