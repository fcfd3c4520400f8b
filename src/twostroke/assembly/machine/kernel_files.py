"""Small files by which the kernel describes a machine. A file that is missing says nothing."""

from __future__ import annotations

from pathlib import Path


def text_of(path: Path) -> str:
    """The text of the file, "" where it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def number_of(path: Path) -> int | None:
    """The number in the file; None where it contains none."""
    text = text_of(path).strip()
    return int(text) if text.isdigit() else None
