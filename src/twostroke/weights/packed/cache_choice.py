"""Tells which folder keeps packed weights. An early start imports this module, so it imports little."""

from __future__ import annotations

from pathlib import Path

NO_CACHE = "off"
"""Asked for instead of a folder."""

PACKED = "packed"
"""The part of the cache folder that has packed weights."""


def kept_folder(asked: str | None, usual: Path) -> Path | None:
    """The cache folder, by what was asked for; None where none is kept."""
    return None if asked == NO_CACHE else Path(asked).expanduser() if asked else usual
