"""Files that a command was asked to write: they are checked before the work begins, and written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twostroke.types.errors import ConfigError


def check_place(path: Path, option: str) -> None:
    """Raises ConfigError where a report could not be written. It is called before anything is measured."""
    try:
        folder = path.resolve().parent
        if not folder.is_dir():
            raise _refused(path, option, f"There is no folder {folder}.")
        if path.exists() and not path.is_file():
            why = "It is a folder." if path.is_dir() else "It is no ordinary file, and would be replaced by one."
            raise _refused(path, option, why)
        partial = _partial(path)
        partial.open("wb").close()
        partial.unlink()
    except OSError as error:
        raise _refused(path, option, f"{error.strerror or error}.") from None


def place_for(path: Path, interrupted: bool) -> Path:
    """Returns the path for a report. An interrupted run never replaces the report of a whole run: where there is a
    file, the new report goes next to it."""
    return path.with_name(f"{path.stem}.interrupted{path.suffix}") if interrupted and path.exists() else path


def write_bytes(path: Path, content: bytes, option: str) -> None:
    """Writes all bytes or none: a half-written file never takes the place of a good one. Raises ConfigError."""
    partial = _partial(path)
    try:
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path.resolve())
        except BaseException:  # also for Ctrl-C
            with contextlib.suppress(OSError):
                partial.unlink()
            raise
    except OSError as error:
        raise _refused(path, option, f"{error.strerror or error}.") from None


def write_whole(path: Path, text: str, option: str) -> None:
    """Writes the whole text or nothing, as `write_bytes` does."""
    write_bytes(path, text.encode(), option)


def write_json(path: Path, value: Mapping[str, Any], option: str) -> None:
    """Writes a value as JSON, whole or not at all. Raises ConfigError."""
    write_whole(path, json.dumps(value, indent=1) + "\n", option)


def _partial(path: Path) -> Path:
    """Returns the path of the partial file: next to the file itself, even where `path` is a link to it."""
    place = path.resolve()
    return place.with_name(f"{place.name}.{os.getpid()}.partial")


def _refused(path: Path, option: str, why: str) -> ConfigError:
    return ConfigError(
        f"{option} {path} cannot be written.", why=why, fix="Name a file in a folder that can be written to."
    )
