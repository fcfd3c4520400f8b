"""Finds the folder that keeps packed weights. An early start imports this module, so it imports little."""

from __future__ import annotations

from pathlib import Path

from twostroke.types.reading.user_path import user_path

NO_CACHE = "off"
"""The word that a user gives instead of a folder to keep no cache."""

PACKED = "packed"
"""The part of the cache folder that holds packed weights."""


def kept_folder(asked: str | None, usual: Path) -> Path | None:
    """Returns the cache folder that was asked for, else the usual one; None where no cache is kept."""
    return None if asked == NO_CACHE else user_path(asked) if asked else usual
