"""Reads untrusted JSON files: bounded in size, no duplicate keys, no NaN, always an object.

Infinity is read, though JSON has no such word: published configs of Mamba-2 have it where a number has no bound.
"""

from __future__ import annotations

import codecs
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from twostroke.system import here
from twostroke.types.errors import CorruptModel
from twostroke.types.reading.unreadable import fix_unreadable, why_unreadable

MAX_CONFIG_BYTES = 16 << 20
DOWNLOAD_AGAIN = "Download the model again; if that does not help, its publisher has to repair it."


def parse_object(raw: bytes, place: str) -> dict[str, Any]:
    """Turns the bytes of a JSON object into a dict. Raises CorruptModel naming `place`."""
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_object_without_duplicates, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise CorruptModel(f"{place} is not valid JSON.", why=f"{str(error)[:200]}.", fix=DOWNLOAD_AGAIN) from None
    if not isinstance(value, dict):
        raise CorruptModel(f"{place} is not a JSON object.", fix=DOWNLOAD_AGAIN)
    return value


def read_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file. Raises CorruptModel where the file is missing, too large or not an object."""
    return parse_object(without_mark(read_bytes(path)), path.name)


def without_mark(raw: bytes) -> bytes:
    """Returns a text without the byte order mark that editors of Windows write at its beginning."""
    return raw.removeprefix(codecs.BOM_UTF8)


def read_bytes(path: Path, max_bytes: int = MAX_CONFIG_BYTES) -> bytes:
    """Returns all bytes of a regular file of at most `max_bytes`. Raises CorruptModel."""
    descriptor = open_regular(path)
    try:
        num_bytes = os.fstat(descriptor).st_size
        if num_bytes > max_bytes:
            raise CorruptModel(
                f"{path.name} has {num_bytes:,} bytes.", why=f"At most {max_bytes:,} are read.", fix=DOWNLOAD_AGAIN
            )
        return os.read(descriptor, num_bytes)
    except OSError as error:
        raise CorruptModel(f"{path} cannot be read.", why=f"{error.strerror}.", fix="Check the disk.") from None
    finally:
        os.close(descriptor)


def open_regular(path: Path) -> int:
    """Returns a read-only descriptor of a regular file (never a pipe or a device, which could block). Raises
    CorruptModel."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise CorruptModel(f"{path} is not a regular file.", fix=DOWNLOAD_AGAIN)
        return os.open(path, os.O_RDONLY | here.file_flags())
    except FileNotFoundError:
        raise CorruptModel(f"{path.name} is missing in {path.parent}.", fix="Download the model again.") from None
    except OSError as error:
        fix = fix_unreadable(error, "Check the disk.")
        raise CorruptModel(f"{path} cannot be opened.", why=why_unreadable(error), fix=fix) from None
    except ValueError as error:
        raise CorruptModel(f"{path!s:.200} is no path.", why=f"{error}.", fix="Check the path.") from None


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object names a member twice")
    return members


def _constant(word: str) -> float:
    if word != "Infinity":
        raise ValueError(f"{word} is not JSON")
    return math.inf
