"""Reads the small text files of a model folder, with limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twostroke.types.errors import CorruptModel
from twostroke.types.reading.unreadable import fix_unreadable, why_unreadable

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""The bytes that editors of Windows write at the beginning of a text."""
MAX_JSON_BYTES = 16 * 1024 * 1024


def read_text(path: Path, max_bytes: int = MAX_JSON_BYTES) -> str:
    """Returns the UTF-8 text of a file, without a byte order mark.

    Raises CorruptModel where the file is too large, unreadable or not UTF-8.
    """
    try:
        size_bytes = path.stat().st_size
        if size_bytes > max_bytes:
            raise CorruptModel(
                f"{path} is {size_bytes:,} bytes.", why=f"At most {max_bytes:,} are read.", fix="Check the download."
            )
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        fix = fix_unreadable(error, "Download the model again.")
        raise CorruptModel(f"{path} cannot be read.", why=why_unreadable(error), fix=fix) from error


def read_object(path: Path, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Returns the JSON object in a file; {} where there is no such file. Raises CorruptModel where the file holds
    something else."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(read_text(path, max_bytes))
    except (ValueError, RecursionError) as error:
        raise CorruptModel(f"{path} is not JSON.", why=f"{error}.", fix="Download the model again.") from error
    if not isinstance(value, dict):
        raise CorruptModel(f"{path} holds no JSON object.", fix="Download the model again.")
    return value
