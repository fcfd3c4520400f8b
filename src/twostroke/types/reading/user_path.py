"""Paths as users write them: "~" stands for a home. The path may not exist, and the text may be no path at all."""

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
    """Returns whether a path exists; False also for a name that is too long, or that is in a folder without access."""
    try:
        return user_path(text).exists()
    except OSError:
        return False
