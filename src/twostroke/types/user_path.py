"""Paths as users write them: "~" stands for a home, and what they name may not exist, or may be no path at all."""

from __future__ import annotations

from pathlib import Path


def user_path(text: str | Path) -> Path:
    """Returns the path, with a home in the place of "~" or "~name". The name of a user who has no home stays as it is
    written."""
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def is_there(text: str | Path) -> bool:
    """Returns whether a path exists. A name that is too long, or one in a folder that may not be read, does not."""
    try:
        return user_path(text).exists()
    except OSError:
        return False
